"""Learning rates as pure functions of the step: a rate, times a factor of the step, times warm-up.

factor = piecewise((82, 123), (1, 0.1, 0.01), examples_per_epoch=50_000, examples_per_step=128)
optimizer = keras.optimizers.SGD(Schedule(0.1, factor))
optimizer = keras.optimizers.SGD(Schedule(0.1, cosine(64_000), warmup_steps=400))
"""

import math
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

# Function from a step, an int64 scalar, to a float32 scalar.
Factor = Callable[[tf.Tensor], tf.Tensor]


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate of each step."""

    def __init__(
        self, learning_rate: float, factor: Factor | None = None, *, warmup_steps: int = 0
    ) -> None:
        """Makes a schedule.

        Args:
          learning_rate: Rate that is multiplied by the others.
          factor: Factor of the step; None for 1.
          warmup_steps: Number of steps over which the rate is also multiplied by a line, from 1 /
            warmup_steps at step 0 to 1.
        """
        super().__init__()
        self._rate, self._factor, self._warmup_steps = learning_rate, factor, warmup_steps

    def __call__(self, step: int | tf.Tensor | keras.Variable) -> tf.Tensor:
        """Returns the rate, a float32 scalar, of the update after `step` updates."""
        step = tf.cast(step, tf.int64)
        rate = self._rate * (self._factor(step) if self._factor else tf.ones([]))
        if self._warmup_steps:
            rate *= tf.cast(
                tf.minimum(step + 1, self._warmup_steps) / self._warmup_steps, tf.float32
            )
        return rate


def linear(horizon_steps: int) -> Factor:
    """Returns a factor that falls linearly from 1 at step 0 to 0 at `horizon_steps`.

    It is 0 after that.
    """
    return lambda step: tf.cast(tf.maximum(1 - step / horizon_steps, 0), tf.float32)


def cosine(horizon_steps: int) -> Factor:
    """Returns a factor that falls along half a cosine from 1 at step 0 to 0 at `horizon_steps`.

    Loshchilov and Hutter 2016, arXiv:1608.03983, without restarts.
    """
    line = linear(horizon_steps)
    return lambda step: 0.5 - 0.5 * tf.cos(math.pi * line(step))


def piecewise(
    boundaries_epochs: Sequence[float],
    factors: Sequence[float],
    *,
    examples_per_epoch: int,
    examples_per_step: int,
) -> Factor:
    """Returns a factor that is constant between boundaries.

    A step is one of the optimizer: the global batch of a synchronous job, or the batch of one
    worker in an asynchronous job, where each worker's update is a step.

    Args:
      boundaries_epochs: Ascending boundaries, in epochs of data seen. From the first step that
        begins after so much data, the next factor holds.
      factors: Factors before, between and after the boundaries.
      examples_per_epoch: Examples of the training split.
      examples_per_step: Examples of a step.
    """
    starts = [
        math.ceil(epochs * examples_per_epoch / examples_per_step) for epochs in boundaries_epochs
    ]

    def factor(step: tf.Tensor) -> tf.Tensor:
        return tf.gather(
            tf.constant(factors, tf.float32),
            tf.math.count_nonzero(step >= tf.constant(starts, tf.int64)),
        )

    return factor
