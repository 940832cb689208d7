"""Random layers inside loops of a model, which TensorFlow traces once for all iterations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.nn import in_training

TIMES, WIDTH = 6, 4


class Cell(keras.layers.Layer):
    """A recurrent cell that is its inner layer alone."""

    state_size = output_size = WIDTH

    def __init__(self, inner: keras.layers.Layer) -> None:
        super().__init__()
        self.inner = inner

    def call(self, x, states, training=False):
        return self.inner(x, training=training), states


def by_time(cell, x: tf.Tensor) -> tf.Tensor:
    return keras.layers.RNN(cell, return_sequences=True)(x, training=True)


def by_example_and_time(cell, x: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda example: by_time(cell, example[None])[0], x)


def noise(inner: keras.layers.Layer, loop=by_time):
    """Returns a function from (step, first, count) to the noise of some examples of one batch."""
    cell = Cell(inner)

    @tf.function
    def draw(step: tf.Tensor, first: int, count: int) -> tf.Tensor:
        with in_training.at(seed=1, step=step, first=first):
            return loop(cell, tf.ones([count, TIMES, WIDTH]))

    return lambda step=7, first=0, count=5: draw(tf.constant(step, tf.int64), first, count).numpy()


def distinct(rows: np.ndarray) -> int:
    return len({row.tobytes() for row in rows.reshape(-1, WIDTH)})


@pytest.mark.parametrize("loop", [by_time, by_example_and_time])
def test_noise_in_loops_differs_by_iteration(loop):
    draw = noise(keras.layers.GaussianNoise(1.0), loop)
    assert distinct(draw()) == 5 * TIMES
    np.testing.assert_array_equal(draw(), draw())
    assert distinct(np.stack([draw(), draw(step=8)])) == 2 * 5 * TIMES


def test_recurrent_dropout_goes_by_position_in_batch():
    draw = noise(keras.layers.Dropout(0.5))
    whole = draw()
    assert len({time.tobytes() for time in whole.swapaxes(0, 1)}) == TIMES
    np.testing.assert_array_equal(np.concatenate([draw(count=2), draw(first=2, count=3)]), whole)


def test_loop_over_steps_does_not_count():
    layer = keras.layers.Dropout(0.5)

    @tf.function
    def train(first_step: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        drawn = tf.TensorArray(tf.float32, steps)
        for i in tf.range(steps):
            with in_training.at(seed=1, step=first_step + tf.cast(i, tf.int64), first=0):
                drawn = drawn.write(i, layer(tf.ones([5, WIDTH]), training=True))
        return drawn.stack()

    straight = train(tf.constant(3, tf.int64), tf.constant(4))
    resumed = train(tf.constant(5, tf.int64), tf.constant(2))
    np.testing.assert_array_equal(resumed, straight[2:])
