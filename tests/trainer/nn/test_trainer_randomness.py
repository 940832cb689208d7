"""Keras' own random layers inside of a training step."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_models import Jitter

from trainer.nn import randomness

L, BATCH = keras.layers, 12
NOISES = {
    "Dropout": lambda: L.Dropout(0.4),
    "SpatialDropout1D": lambda: L.SpatialDropout1D(0.4),
    "noise_shape": lambda: L.Dropout(0.4, noise_shape=(None, 1, 5)),
    "GaussianNoise": lambda: L.GaussianNoise(1.0),
    "AlphaDropout": lambda: L.AlphaDropout(0.4, seed=3),
    "LSTM": lambda: L.LSTM(4, dropout=0.3, recurrent_dropout=0.3),
    "MultiHeadAttention": lambda: keras.Sequential([keras.Input((6, 5)), Attention()]),
    "RandomTranslation": lambda: keras.Sequential([L.Reshape((6, 5, 1)), L.RandomTranslation(0.5, 0.5)]),
    "own": Jitter,
}


class Attention(L.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.attention = L.MultiHeadAttention(2, 3, dropout=0.5)

    def build(self, shape) -> None:
        self.attention.build(shape, shape)

    def call(self, x, training=False):
        return self.attention(x, x, training=training)


def batch(count):
    return tf.ones([count, 1, 1]) * tf.reshape(tf.range(1.0, 31.0), [6, 5])


def noisy(layer: keras.layers.Layer):
    """A function from (seed, step, first, count) to what the layer makes of some of the batch, whose examples are equal."""

    @tf.function
    def called(seed, step, first, count):
        with randomness.deterministic_context(seed=seed, step=step, first=first):
            return layer(batch(count), training=True)

    layer(batch(BATCH))
    return lambda seed=1, step=7, first=0, count=BATCH: called(seed, tf.constant(step, tf.int64), first, count).numpy()


KINDS = [pytest.param(kind, marks=() if kind in ("Dropout", "own") else pytest.mark.cluster) for kind in NOISES]


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_a_function_of_the_place_in_training_alone(kind):
    layer = NOISES[kind]()
    here = noisy(layer)
    whole = here()
    assert not np.array_equal(whole, layer(batch(BATCH), training=False))
    # Elsewhere in the process something else has been drawn meanwhile.
    layer(batch(BATCH), training=True)
    keras.random.normal((3,))
    np.testing.assert_array_equal(here(), whole)
    if kind not in ("LSTM", "MultiHeadAttention"):  # whose weights differ
        np.testing.assert_array_equal(noisy(NOISES[kind]())(), whole)
    for other in ({"step": 8}, {"seed": 2}):
        assert not np.array_equal(here(**other), whole)
    second = here(first=6, count=6)
    assert not np.array_equal(second, whole[:6])
    if kind == "Dropout":  # however the batch is split over replicas
        np.testing.assert_array_equal(np.concatenate([here(count=5), here(first=5, count=7)]), whole)


def test_dropout_is_keras_own_elsewhere_and_where_all_or_nothing_is_dropped():
    x = tf.random.stateless_uniform([BATCH, 9], [1, 2])
    elsewhere = L.Dropout(0.3, seed=1)
    first = elsewhere(x, training=True)
    assert not np.array_equal(elsewhere(x, training=True), first)
    for rate, expected in ((0.0, x), (1.0, tf.zeros_like(x))):
        with randomness.deterministic_context(seed=1, step=tf.constant(3, tf.int64), first=0):
            np.testing.assert_array_equal(L.Dropout(rate)(x, training=True), expected)
