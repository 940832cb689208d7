import dataclasses

import numpy as np
import pytest

from common.manifest import Manifest
from trainer.models import cnn


def resized(manifest: Manifest, shape: tuple[int, int, int], high: float) -> Manifest:
    image = dataclasses.replace(manifest.feature("image"), shape=shape, value_range=(0.0, high))
    return dataclasses.replace(manifest, features=(image, manifest.feature("label")))


def test_cnn_has_published_parameters(digits):
    model = cnn.build(resized(Manifest.load(digits), (28, 28, 1), 255.0))
    assert model.count_params() == 93_322


@pytest.mark.parametrize("shape", [(5, 7, 3), (1, 1, 1), (17, 18, 1), (18, 18, 1)])
def test_cnn_takes_any_image(digits, shape):
    model = cnn.build(resized(Manifest.load(digits), shape, 255.0))
    assert model({"image": np.zeros((2, *shape), np.uint8)}).shape == (2, 10)


def test_pixels_are_scaled_by_range(digits):
    manifest = Manifest.load(digits)
    bright, full = (np.full((1, 8, 8, 1), value, np.uint8) for value in (16, 255))
    narrow = cnn.build(resized(manifest, (8, 8, 1), 16.0))
    wide = cnn.build(resized(manifest, (8, 8, 1), 255.0))
    wide.set_weights(narrow.get_weights())
    np.testing.assert_allclose(narrow({"image": bright}), wide({"image": full}), rtol=1e-5)
