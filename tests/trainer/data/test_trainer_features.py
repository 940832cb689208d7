import io

import numpy as np
import pytest
import tensorflow as tf
from numbered import picture
from PIL import Image

from trainer.data import augmentation, features

SIZES = [(40, 60), (61, 40), (24, 32), (25, 30), (7, 90)]
FILES = [picture(h, w, kind, seed=h) for h, w in SIZES for kind in ("PNG", "JPEG")]


def test_an_image_of_the_right_size_is_kept_to_the_pixel():
    for kind in ("PNG", "JPEG"):
        file = picture(24, 32, kind)
        expected = tf.io.decode_image(file, 3).numpy()
        assert np.array_equal(features.decode_images(tf.constant([file]), (24, 32, 3))[0], expected)


def test_grey_and_colour_are_what_the_shape_says():
    assert features.decode_images(tf.constant(FILES[:2]), (8, 8, 1)).shape == (2, 8, 8, 1)
    gray = io.BytesIO()
    Image.new("L", (9, 9), 77).save(gray, "PNG")
    assert (features.decode_images(tf.constant([gray.getvalue()]), (8, 8, 3)).numpy() == 77).all()


def test_a_training_crop_follows_from_seed_step_and_position_alone():
    def crops(seed: int, step: int, positions: range) -> np.ndarray:
        draws = augmentation.draw_crops(seed=seed, step=step, positions=tf.constant(positions, tf.int64))
        return features.decode_images(tf.constant([FILES[i] for i in positions]), (12, 16, 3), crops=draws).numpy()

    whole = crops(1, 2, range(10))
    assert np.array_equal(np.concatenate([crops(1, 2, range(4)), crops(1, 2, range(4, 10))]), whole)
    assert not np.array_equal(crops(1, 3, range(10)), whole)
    assert not np.array_equal(crops(2, 2, range(10)), whole)


def test_crops_lie_within_the_image_and_cover_what_they_should():
    draws = augmentation.draw_crops(seed=0, step=0, positions=tf.range(4000, dtype=tf.int64))
    for height, width in ((40, 60), (1, 1), (3, 500)):
        parts = augmentation.crop_of(tf.constant([[height, width]] * 4000), draws).numpy()
        assert (parts[:, :2] >= 0).all()
        assert (parts[:, 2:] >= 1).all()
        assert (parts[:, :2] + parts[:, 2:] <= [height, width]).all()
    parts = augmentation.crop_of(tf.constant([[200, 200]] * 4000), draws).numpy()
    areas, ratios = parts[:, 2] * parts[:, 3] / 40_000, parts[:, 3] / parts[:, 2]
    assert 0.07 < areas.min() < 0.1 < 0.9 < areas.max() <= 1
    assert 0.45 < areas.mean() < 0.58
    assert 0.7 < ratios.min() < 0.8 < 1.25 < ratios.max() < 1.4
    assert abs((draws[:, 4] < 0.5).numpy().mean() - 0.5) < 0.04


@pytest.mark.parametrize("kind", ["pixels", "file"])
def test_the_part_that_was_drawn_is_resized_and_mirrored_of_pixels_in_memory_and_of_files(kind):
    ramp = np.arange(0, 240, 8, dtype=np.uint8)[None, :, None] + np.zeros((20, 1, 3), np.uint8)
    draws = augmentation.draw_crops(seed=3, step=5, positions=tf.range(60, dtype=tf.int64))
    if kind == "pixels":
        out = augmentation.crop_and_resize(tf.constant(np.stack([ramp] * 60)), draws).numpy()
    else:
        file = io.BytesIO()
        Image.fromarray(ramp).save(file, "PNG")
        out = features.decode_images(tf.constant([file.getvalue()] * 60), (20, 30, 3), crops=draws).numpy()
    assert out.shape == (60, 20, 30, 3) and out.dtype == np.uint8
    parts = augmentation.crop_of(tf.constant([[20, 30]] * 60), draws).numpy()
    for pixels, (_, left, _, wide), mirrored in zip(out[..., 0], parts, draws[:, 4].numpy() < 0.5, strict=True):
        row = (pixels[0][::-1] if mirrored else pixels[0]).astype(int)
        assert abs(row[0] - 8 * left) <= 8 and abs(row[-1] - 8 * (left + wide - 1)) <= 8
        assert (np.diff(row) >= 0).all()
