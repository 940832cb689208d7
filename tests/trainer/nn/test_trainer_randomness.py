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
EXAMPLES = tf.tile(tf.reshape(tf.range(1.0, 31.0), [1, 6, 5]), [BATCH, 1, 1])


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.long
def test_noise_follows_from_place_in_training(layer):
    @tf.function
    def draw(seed, step, first):
        with randomness.deterministic_context(seed=seed, step=step, first=first):
            return layer(EXAMPLES[first:], training=True)

    drawn = draw(1, tf.constant(7), 0).numpy()
    assert not np.array_equal(drawn, layer(EXAMPLES))
    layer(EXAMPLES, training=True)  # Draws elsewhere in the process do not matter.
    np.testing.assert_array_equal(draw(1, tf.constant(7), 0), drawn)
    for seed, step, first in ((1, 8, 0), (2, 7, 0), (1, 7, 6)):
        assert not np.array_equal(draw(seed, tf.constant(step), first), drawn[: BATCH - first])


def test_dropout_is_independent_of_replicas():
    layer = L.Dropout(0.3)

    def drop(first, count):
        with randomness.deterministic_context(seed=1, step=7, first=first):
            return layer(tf.ones([count, 50]), training=True), randomness.seed()

    dropped, _ = drop(0, 1000)
    values, counts = np.unique(dropped, return_counts=True)
    np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-6)
    assert counts[0] / 50_000 == pytest.approx(0.3, abs=0.01)
    np.testing.assert_array_equal(tf.concat([drop(0, 5)[0], drop(5, 995)[0]], 0), dropped)
    compiled = tf.function(drop, jit_compile=True)(tf.constant(5), 7)
    for one, other in zip(compiled, drop(5, 7), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
