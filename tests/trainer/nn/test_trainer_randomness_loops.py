"""Random layers inside loops of a model, which TensorFlow traces once for all iterations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.nn import randomness

EXAMPLES, TIMES, WIDTH = 5, 6, 8


@pytest.mark.parametrize("noise", [keras.layers.GaussianNoise(1.0), keras.layers.Dropout(0.5)])
def test_noise_differs_by_time_and_step(noise):
    class Cell(keras.layers.SimpleRNNCell):
        def call(self, inputs, states, training=False):
            return noise(inputs, training=training), states

    layer = keras.layers.RNN(Cell(WIDTH), return_sequences=True)

    @tf.function
    def draw(step, first=0, count=EXAMPLES):
        with randomness.deterministic_context(seed=1, step=step, first=first):
            return layer(tf.ones([count, TIMES, WIDTH]), training=True)

    steps = tf.range(3, 7)
    drawn = tf.function(lambda: tf.map_fn(draw.python_function, steps, tf.float32))().numpy()
    by_time = drawn.swapaxes(1, 2).reshape(4 * TIMES, -1)
    assert len(np.unique(by_time, axis=0)) == 4 * TIMES
    # The loop over steps is none of the model.
    np.testing.assert_array_equal(draw(steps[2]), drawn[2])
    if isinstance(noise, keras.layers.Dropout):  # however the batch is split over replicas
        parts = draw(steps[0], 0, 2), draw(steps[0], 2, 3)
        np.testing.assert_array_equal(np.concatenate(parts), drawn[0])
