import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from trainer.models import resnet
from trainer.nn.layers import BatchNormalization


@pytest.fixture(scope="module")
def manifest(digits) -> Manifest:
    """Of CIFAR-10's shape."""
    digits = Manifest.load(digits)
    image = dataclasses.replace(
        digits.feature("image"), shape=(32, 32, 3), value_range=(0.0, 255.0)
    )
    return dataclasses.replace(digits, features=(image, digits.feature("label")))


def build(manifest: Manifest, num_layers: int = 8, **image) -> keras.Model:
    image = dataclasses.replace(manifest.feature("image"), **image)
    manifest = dataclasses.replace(manifest, features=(image,))
    return resnet.build(
        manifest, num_layers=num_layers, batch_norm_decay=0.9, batch_norm_epsilon=1e-3
    )


@pytest.mark.parametrize(("num_layers", "eleven_classes"), [(8, 75_355), (20, 269_787)])
def test_resnet_has_published_parameters(manifest, num_layers, eleven_classes):
    model = build(manifest, num_layers)
    assert sum(int(np.prod(w.shape)) for w in model.trainable_weights) == eleven_classes - (64 + 1)
    assert sum(weight.name == "kernel" for weight in model.trainable_weights) == num_layers


@pytest.mark.parametrize("num_layers", [9, 2])
def test_impossible_depth_is_error(manifest, num_layers):
    with pytest.raises(
        UserError, match=rf"^--num-layers {num_layers}: .*6n . 2 layers; use 8, 14, 20"
    ):
        build(manifest, num_layers)


def reference(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    """ResNet-8 in inference, written down a second time with plain TensorFlow operations."""
    weights = iter(weights)

    def unit(x: tf.Tensor, stride: int) -> tf.Tensor:
        pads = [[0, 0], [1, 1], [1, 1], [0, 0]]
        x = tf.nn.conv2d(tf.pad(x, pads), next(weights), stride, "VALID")
        gamma, beta, mean, variance = (next(weights) for _ in range(4))
        return gamma * (x - mean) / np.sqrt(variance + 1e-3) + beta

    x = tf.nn.relu(unit(x / 128.0 - 1, 1))
    for stride, pad in ((1, 0), (2, 8), (2, 16)):
        shortcut = x if stride == 1 else sum(x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)) / 4
        y = unit(tf.nn.relu(unit(x, stride)), 1)
        x = tf.nn.relu(y + tf.pad(shortcut, [[0, 0], [0, 0], [0, 0], [pad, pad]]))
    return tf.reduce_mean(x, (1, 2)) @ next(weights) + next(weights)


def test_resnet_agrees_with_plain_operations(manifest):
    model = build(manifest)
    norms = [layer for layer in model.layers if isinstance(layer, BatchNormalization)]
    assert {(n.decay, n.epsilon) for n in norms} == {(0.9, 1e-3)} and len(norms) == 7
    random = np.random.default_rng(0)
    signs = ([1, -1] if weight.ndim == 4 else [1] for weight in model.get_weights())
    weights = zip(model.get_weights(), signs, strict=True)
    model.set_weights(
        [random.uniform(0.1, 0.5, w.shape) * random.choice(sign, w.shape) for w, sign in weights]
    )
    images = random.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    logits = model({"image": images})
    assert logits.shape == (2, 10) and logits.dtype == tf.float32
    np.testing.assert_allclose(
        logits, reference(images.astype(np.float32), model.get_weights()), rtol=1e-3
    )


@pytest.mark.parametrize(
    ("dtype", "low", "high", "values", "expected"),
    [
        ("uint8", 0, 255, [0, 64, 128, 255], [-1, -0.5, 0, 127 / 128]),
        ("uint8", 0, 16, [0, 16], [-1, 15 / 17]),
        ("float32", -2, 2, [-2, 0, 2], [-1, 0, 1]),
    ],
)
def test_pixels_are_scaled_by_range(manifest, dtype, low, high, values, expected):
    model = build(manifest, shape=(1, 1, 1), dtype=dtype, value_range=(float(low), float(high)))
    scaling = next(layer for layer in model.layers if "rescaling" in layer.name)
    pixels = np.reshape(values, (-1, 1, 1, 1)).astype(dtype)
    np.testing.assert_allclose(np.ravel(scaling(pixels)), expected, atol=1e-6)
    assert scaling is model.layers[1]
