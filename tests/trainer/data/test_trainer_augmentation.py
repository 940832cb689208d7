import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
from numbered import dataset, picture, reader_of

from trainer.data.augmentation import crop_and_flip


def random_images(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def test_crops_are_uniform():
    """An image becomes one of 18 crops of its frame, all as often as the others."""
    image = random_images(6, 5, 1)
    framed = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    crops = {
        framed[down : down + 6, across : across + 5][:, ::mirror].tobytes()
        for down, across, mirror in itertools.product(range(3), range(3), (1, -1))
    }
    changed = crop_and_flip(
        np.stack([image] * 4000), seed=5, step=9, positions=np.arange(4000), pad=1
    )
    counts = collections.Counter(crop.tobytes() for crop in changed.numpy())
    assert counts.keys() == crops
    # Chi-square of 17 degrees of freedom, p = 0.001.
    assert sum((n - 4000 / 18) ** 2 for n in counts.values()) / (4000 / 18) < 40.8


def test_crops_follow_seed_and_step():
    """Replicas are compared with one another by test_replicas_learn_as_one."""
    places = ((0, 0), (0, 1), (1, 0), (0, 2**33))
    images, at = random_images(10, 6, 7, 3), np.arange(10)
    crops = [crop_and_flip(images, seed=seed, step=i, positions=at) for seed, i in places]
    assert len({each.numpy().tobytes() for each in crops}) == 4


@pytest.mark.parametrize(
    "files", [None, [picture(12, 12, seed=i) for i in range(20)]], ids=["pixels", "files"]
)
def test_augmentation_precedes_prepare(tmp_path, files):
    """A model gets the same pixels in every mode, augmented as the dataset has them."""
    manifest = dataset(tmp_path / "data", 20, shape=(8, 8, 1), files=files)

    def scale(columns):
        return {"image": tf.cast(columns["image"], tf.float32) / 128 - 1}

    def batch(mode, prepare, augment="crop_flip"):
        options = {"prepare": prepare, "augment": augment}
        reader = reader_of(manifest, tmp_path / "data", mode, 9, **options)
        return reader.batch(reader.load(), tf.constant(3, tf.int64), 0, 9)

    expected = scale(batch("resident", dict))["image"]
    for mode in ("resident", "mapped"):
        np.testing.assert_array_equal(batch(mode, scale)["image"], expected)
        assert not np.array_equal(batch(mode, scale, "none")["image"], expected)
