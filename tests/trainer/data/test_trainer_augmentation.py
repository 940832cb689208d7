import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from numbered import dataset, picture

from trainer.data.augmentation import crop_and_flip
from trainer.data.placement import choose
from trainer.data.reader import open_reader


def draws(images: np.ndarray, changed: np.ndarray, pad: int) -> list[tuple[int, int, bool]]:
    """Which crop (down, across, mirrored) each image became; every crop of a random image is another."""
    found = []
    for image, result in zip(images, changed, strict=True):
        framed = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(framed, image.shape)[:, :, 0]
        fits = [
            (*map(int, offset), mirrored)
            for mirrored in (False, True)
            for offset in np.argwhere((windows == (result[:, ::-1] if mirrored else result)).all((2, 3, 4)))
        ]
        assert len(fits) == 1
        found += fits
    return found


def random_images(count: int, height: int, width: int, channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, channels), dtype=np.uint8)


@given(
    height=st.integers(5, 9),
    width=st.integers(5, 9),
    channels=st.integers(1, 4),
    pad=st.integers(0, 4),
    seed=st.integers(0, 2**31 - 1),
    step=st.integers(0, 2**40),
)
def test_each_image_becomes_one_crop_of_itself_framed_with_zeros(height, width, channels, pad, seed, step):
    images = random_images(6, height, width, channels)
    changed = crop_and_flip(images, seed=seed, step=step, positions=tf.range(6, dtype=tf.int64), pad=pad).numpy()
    assert changed.dtype == np.uint8
    draws(images, changed, pad)


def test_offsets_and_flips_are_uniform_and_independent():
    images, pad = random_images(4000, 6, 5, 1), 1
    found = draws(images, crop_and_flip(images, seed=5, step=9, positions=np.arange(4000), pad=pad).numpy(), pad)
    counts = np.zeros((3, 3, 2))
    for down, across, mirrored in found:
        counts[down, across, int(mirrored)] += 1
    expected = 4000 / counts.size
    assert ((counts - expected) ** 2 / expected).sum() < 40.8  # chi-square, 17 degrees of freedom, p = 0.001
    pairs = np.zeros((2, 2))
    for (*_, one), (*_, other) in zip(found[:-1:2], found[1::2], strict=True):
        pairs[int(one), int(other)] += 1
    assert ((pairs - 500) ** 2 / 500).sum() < 16.3  # neighbours: 3 degrees of freedom


def test_crops_follow_from_seed_step_and_position_and_not_from_the_split_over_replicas():
    images, positions = random_images(10, 6, 7, 3), np.arange(10)
    whole = {
        (seed, step): crop_and_flip(images, seed=seed, step=step, positions=positions).numpy()
        for seed, step in [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2**33)]
    }
    assert len({changed.tobytes() for changed in whole.values()}) == 5
    graph = tf.function(lambda x, at: crop_and_flip(x, seed=0, step=tf.constant(1, tf.int64), positions=at))
    parts = [graph(images[part], tf.constant(part, tf.int64)) for part in np.array_split(positions, 3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole[0, 1])


@pytest.mark.parametrize("files", [None, [picture(12, 12, seed=i) for i in range(20)]], ids=["pixels", "files"])
@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_augmentation_precedes_prepare(tmp_path, augment, files):
    """In every mode the model gets the same pixels, augmented as the dataset has them."""
    manifest = dataset(tmp_path / "data", 20, shape=(8, 8, 1), files=files)

    def scale(columns):
        return {"pixels": tf.cast(columns["image"], tf.float32) / 128 - 1}

    def batch(mode, prepare):
        place = choose(manifest, data_dir=str(tmp_path / "data"), budget_bytes=1e9, wish=mode)
        reader = open_reader(place, manifest, global_batch=9, seed=0, prepare=prepare, augment=augment)
        return reader.batch(reader.load(), tf.constant(3, tf.int64), 0, 9)

    expected = scale(batch("resident", dict))["pixels"]
    for mode in ("resident", "mapped"):
        np.testing.assert_array_equal(batch(mode, scale)["pixels"], expected)
