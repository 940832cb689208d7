"""Random layers of Keras inside a training step."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_models import Jitter

from trainer.nn import randomness

L, BATCH = keras.layers, 12
LAYERS = [
    L.Dropout(0.4),
    L.Dropout(0.4, noise_shape=(None, 1, 5)),
    L.LSTM(4, dropout=0.3, recurrent_dropout=0.3),
    keras.Sequential([L.Reshape((6, 5, 1)), L.RandomTranslation(0.5, 0.5)]),
    Jitter(),
]


def batch(count):
    """Returns equal examples."""
    return tf.ones([count, 1, 1]) * tf.reshape(tf.range(1.0, 31.0), [6, 5])


@pytest.mark.parametrize("layer", LAYERS)
def test_noise_follows_from_place_in_training(layer):
    @tf.function
    def draw(seed, step, first, count):
        with randomness.deterministic_context(seed=seed, step=step, first=first):
            return layer(batch(count), training=True)

    inferred = layer(batch(BATCH))
    drawn = draw(1, tf.constant(7, tf.int64), 0, BATCH).numpy()
    assert not np.array_equal(drawn, inferred)
    # Draws elsewhere in the process do not matter.
    layer(batch(BATCH), training=True)
    keras.random.normal((3,))
    np.testing.assert_array_equal(draw(1, tf.constant(7, tf.int64), 0, BATCH), drawn)
    for seed, step in ((1, 8), (2, 7)):
        assert not np.array_equal(draw(seed, tf.constant(step, tf.int64), 0, BATCH), drawn)
    assert not np.array_equal(draw(1, tf.constant(7, tf.int64), 6, 6), drawn[:6])


def test_dropout_is_independent_of_replicas():
    layer = L.Dropout(0.3)

    def drop(first, count):
        with randomness.deterministic_context(seed=1, step=7, first=first):
            return layer(tf.ones([count, 50]), training=True), randomness.seed()

    dropped, _ = drop(0, 1000)
    values, counts = np.unique(dropped, return_counts=True)
    np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-6)
    assert counts[0] / 50_000 == pytest.approx(0.3, abs=0.01)
    assert (
        np.abs(np.corrcoef(dropped[:-1].numpy().ravel(), dropped[1:].numpy().ravel())[0, 1]) < 0.02
    )
    np.testing.assert_array_equal(tf.concat([drop(0, 5)[0], drop(5, 995)[0]], 0), dropped)
    compiled = tf.function(drop, jit_compile=True)(tf.constant(5), 7)
    for one, other in zip(compiled, drop(5, 7), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_dropout_of_keras_in_other_cases():
    x = tf.random.stateless_uniform([BATCH, 9], [1, 2])
    for rate, expected in ((0.0, x), (1.0, tf.zeros_like(x))):
        with randomness.deterministic_context(seed=1, step=3, first=0):
            np.testing.assert_array_equal(L.Dropout(rate)(x, training=True), expected)
    outside = L.Dropout(0.3, seed=1)
    assert not np.array_equal(outside(x, training=True), outside(x, training=True))


@pytest.mark.parametrize("noise", [L.GaussianNoise(1.0), L.Dropout(0.5)])
def test_noise_differs_in_each_iteration(noise):
    """TensorFlow traces the body of a loop once for all iterations."""

    class Cell(L.SimpleRNNCell):
        def call(self, inputs, states, training=False):
            return noise(inputs, training=training), states

    layer = L.RNN(Cell(8), return_sequences=True)

    @tf.function
    def draw(step):
        with randomness.deterministic_context(seed=1, step=step, first=0):
            return layer(tf.ones([5, 6, 8]), training=True)

    steps = tf.range(3, 7)
    drawn = tf.function(lambda: tf.map_fn(draw.python_function, steps, tf.float32))().numpy()
    by_time = drawn.swapaxes(1, 2).reshape(4 * 6, -1)
    assert len(np.unique(by_time, axis=0)) == 4 * 6
    # The loop over steps is not one of the model.
    np.testing.assert_array_equal(draw(steps[2]), drawn[2])
