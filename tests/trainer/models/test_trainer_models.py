"""The networks for images, compared with their publications and with plain operations."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.errors import user_error
from trainer.models import cnn, resnet


def manifest(images, shape, high=255.0):
    image = dataclasses.replace(images.feature("image"), shape=shape, value_range=(0.0, high))
    return dataclasses.replace(images, features=(image, images.feature("label")))


build_resnet = functools.partial(resnet.build, batch_norm_decay=0.9, batch_norm_epsilon=1e-3)


def test_models_have_published_parameters(images):
    assert cnn.build(manifest(images, (28, 28, 1))).count_params() == 93_322
    model = build_resnet(manifest(images, (32, 32, 3)), num_layers=20)
    of_eleven_classes = 269_787
    assert sum(np.prod(w.shape) for w in model.trainable_weights) == of_eleven_classes - (64 + 1)
    assert sum(weight.name == "kernel" for weight in model.trainable_weights) == 20


@pytest.mark.parametrize("num_layers", [9, 2])
def test_impossible_depth_is_error(images, num_layers):
    expected = rf"^--num-layers {num_layers}: .*6n . 2 layers; use 8, 14, 20"
    with user_error(expected):
        build_resnet(images, num_layers=num_layers)


def test_resnet_answers_as_earlier_versions(images):
    """Figures of a model that agreed with the same network of plain operations of TensorFlow."""
    model = build_resnet(manifest(images, (32, 32, 3)), num_layers=8)
    assert {getattr(layer, "decay", 0.9) for layer in model.layers} == {0.9}
    random, weights = np.random.default_rng(0), []
    for weight in model.get_weights():
        value = random.uniform(0.1, 0.5, weight.shape)
        weights.append(value * random.choice([1, -1], weight.shape) if weight.ndim == 4 else value)
    model.set_weights(weights)
    logits = model({"image": random.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)})
    assert logits.shape == (2, 10) and logits.dtype == tf.float32
    np.testing.assert_allclose(logits[:, 0], [461.9614, 484.515], rtol=1e-4)
