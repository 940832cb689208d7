import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.nn.layers import BatchNormalization, Embedding, exchanges


def train_and_infer(layer: keras.layers.Layer, x: tf.Tensor) -> list[np.ndarray]:
    """Returns output and gradients of a training step, the moving statistics after it, and the output of inference."""
    layer.build(x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
        # Neither linear nor even in y, or much of a wrong gradient would not show.
        loss = tf.reduce_sum(tf.sin(tf.cast(y, tf.float32)) * x**2)
    gradients = tape.gradient(loss, [x, layer.gamma, layer.beta])
    moving = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    inferred = layer(x)
    layer.trainable = False
    np.testing.assert_array_equal(layer(x, training=True), inferred)
    np.testing.assert_array_equal((layer.moving_mean, layer.moving_variance), moving)
    return [np.asarray(tf.cast(value, tf.float32)) for value in (y, *gradients, *moving, inferred)]


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(11, 4, 6, 5), (1, 1, 1, 5)])
def test_batch_norm_agrees_with_keras(shape, dtype):
    """Replicas are compared with one another by test_replicas_learn_as_one."""
    channel = np.arange(5)
    x = tf.constant(np.random.default_rng(0).normal(channel, 1 + channel / 2, shape), tf.float32)
    actual = train_and_infer(BatchNormalization(decay=0.9, dtype=dtype), x)
    expected = train_and_infer(
        keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, dtype=dtype), x
    )
    tolerance = 1e-5 if dtype == "float32" else 0.03
    for ours, theirs in zip(actual, expected, strict=True):
        # Relative to the largest: a single value may be the difference of two large numbers.
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


@pytest.mark.parametrize("make", [BatchNormalization, keras.layers.BatchNormalization])
def test_exchanges_with_trainable_batch_norm(make):
    layer = make()
    model = keras.Sequential(
        [keras.Input([2, 2, 3]), keras.Sequential([layer]), keras.layers.Dense(2)]
    )
    assert exchanges(model)
    layer.trainable = False
    assert not exchanges(model)


def test_embedding_gradient_has_gathered_rows():
    layer = Embedding(40, 3, initializer=keras.initializers.RandomNormal(), dtype="mixed_bfloat16")
    numbers = np.array([[3, 11], [12, 3]], np.int32)
    with tf.GradientTape() as tape:
        rows = layer(numbers)
    gradient = tape.gradient(rows, layer.table.value)
    assert layer.table.dtype == "float32"
    np.testing.assert_array_equal(rows, tf.cast(layer.table.numpy()[numbers], tf.bfloat16))
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.numpy().tolist() == [3, 11, 12, 3]
