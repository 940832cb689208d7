"""Random layers of Keras inside a training step."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.nn import randomness


def test_dropout_is_independent_of_replicas():
    layer = keras.layers.Dropout(0.3)

    def drop(first, count, step=7, seed=1):
        with randomness.deterministic_context(seed=seed, step=step, first=first):
            return layer(tf.ones([count, 50]), training=True), randomness.seed()

    dropped, _ = drop(0, 1000)
    values, counts = np.unique(dropped, return_counts=True)
    np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-6)
    assert counts[0] / 50_000 == pytest.approx(0.3, abs=0.01)
    np.testing.assert_array_equal(tf.concat([drop(0, 5)[0], drop(5, 995)[0]], 0), dropped)
    for others in (drop(0, 1000, step=8)[0], drop(0, 1000, seed=2)[0]):
        assert not np.array_equal(others, dropped)
    compiled = tf.function(drop, jit_compile=True)(tf.constant(5), 7)
    for one, other in zip(compiled, drop(5, 7), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
