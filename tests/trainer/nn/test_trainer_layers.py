import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.nn.layers import BatchNormalization


def train_and_infer(layer, x):
    """Returns output and gradients of a step, the moving statistics after it, and an inference."""
    layer.build(x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
        # Neither linear nor even in y, or much of a wrong gradient would not show.
        loss = tf.reduce_sum(tf.sin(tf.cast(y, tf.float32)) * x**2)
    gradients = tape.gradient(loss, [x, layer.gamma, layer.beta])
    layer.trainable = False
    values = (y, *gradients, *layer.non_trainable_variables, layer(x, training=True))
    return [np.asarray(tf.cast(value, tf.float32)) for value in values]


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(11, 4, 6, 5), (1, 1, 1, 5)])
def test_batch_norm_agrees_with_keras(shape, dtype):
    """Replicas are compared with one another by test_replicas_learn_as_one."""
    x = tf.constant(np.random.default_rng(0).normal([0, 1, 2, 3, 4], 2, shape), tf.float32)
    keras_layer = keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, dtype=dtype)
    ours = train_and_infer(BatchNormalization(decay=0.9, dtype=dtype), x)
    for actual, expected in zip(ours, train_and_infer(keras_layer, x), strict=True):
        # Relative to the largest: a single value may be the difference of two large numbers.
        atol = (1e-5 if dtype == "float32" else 0.03) * np.abs(expected).max()
        np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)
