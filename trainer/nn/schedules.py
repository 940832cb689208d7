"""Learning rates as pure functions of the step.

rate = PiecewiseEpochs(
    0.1, boundaries_epochs=(82, 123), factors=(1, 0.1, 0.01), examples_per_epoch=50_000, examples_per_step=128
)
rate = Cosine(0.1, horizon_steps=64_000, warmup_steps=400)
optimizer = keras.optimizers.SGD(rate)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.base.errors import UserError


@keras.saving.register_keras_serializable("trainer")
class Constant(keras.optimizers.schedules.LearningRateSchedule):
    """One rate for ever, and the base of the other schedules, which multiply it by a factor.

    Args:
      learning_rate: The rate after warm-up.
      warmup_steps: The rate, whatever it is by then, grows linearly over that many steps; step 0 takes 1 / warmup_steps.
      config: Further arguments of a subclass, kept to serialise it.
    """

    def __init__(self, learning_rate: float, *, warmup_steps: int = 0, **config: Any) -> None:
        super().__init__()
        self._config = {"learning_rate": learning_rate, "warmup_steps": warmup_steps, **config}

    def __call__(self, step: int | tf.Tensor | keras.Variable) -> tf.Tensor:
        """The rate, a float32 scalar, of the update after `step` updates."""
        step = tf.cast(step, tf.int64)
        rate = self._config["learning_rate"] * self._factor(step)
        if warmup := self._config["warmup_steps"]:
            rate *= tf.cast(tf.minimum(step + 1, warmup) / warmup, tf.float32)
        return rate

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return dict(self._config)

    def _factor(self, step: tf.Tensor) -> tf.Tensor:
        return tf.ones([])


@keras.saving.register_keras_serializable("trainer")
class Linear(Constant):
    """Falls linearly, from `learning_rate` at step 0 to 0 at `horizon_steps`."""

    def __init__(self, learning_rate: float, *, horizon_steps: int, warmup_steps: int = 0) -> None:
        super().__init__(learning_rate, warmup_steps=warmup_steps, horizon_steps=horizon_steps)

    def _factor(self, step: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.maximum(1 - step / self._config["horizon_steps"], 0), tf.float32)


@keras.saving.register_keras_serializable("trainer")
class Cosine(Linear):
    """Falls along half a cosine (Loshchilov and Hutter 2016, arXiv:1608.03983, without restarts) to 0 at `horizon_steps`."""

    def _factor(self, step: tf.Tensor) -> tf.Tensor:
        return 0.5 - 0.5 * tf.cos(math.pi * super()._factor(step))


@keras.saving.register_keras_serializable("trainer")
class PiecewiseEpochs(Constant):
    """Constant between boundaries that are given in epochs of data seen.

    Args:
      learning_rate: What the factors multiply.
      boundaries_epochs: Ascending. The next factor holds from the first step that begins after so much data.
      factors: One more than boundaries.
      examples_per_epoch: In the training split.
      examples_per_step: Seen in one step of the optimizer: the global batch of a synchronous job; the batch of one
        worker in an asynchronous job, where each worker's update is a step.
      warmup_steps: As in `Constant`.

    Raises:
      UserError: If factors and boundaries do not go together.
    """

    def __init__(
        self,
        learning_rate: float,
        *,
        boundaries_epochs: Sequence[float],
        factors: Sequence[float],
        examples_per_epoch: int,
        examples_per_step: int,
        warmup_steps: int = 0,
    ) -> None:
        boundaries, factors = list(boundaries_epochs), list(factors)
        if len(factors) != len(boundaries) + 1 or boundaries != sorted(boundaries):
            raise UserError(f"factors {factors} do not go with boundaries {boundaries}: one more, boundaries ascending")
        super().__init__(
            learning_rate,
            warmup_steps=warmup_steps,
            boundaries_epochs=boundaries,
            factors=factors,
            examples_per_epoch=examples_per_epoch,
            examples_per_step=examples_per_step,
        )
        self._boundaries_steps = [math.ceil(epochs * examples_per_epoch / examples_per_step) for epochs in boundaries]

    def _factor(self, step: tf.Tensor) -> tf.Tensor:
        passed = tf.math.count_nonzero(step >= tf.constant(self._boundaries_steps, tf.int64))
        return tf.gather(tf.constant(self._config["factors"], tf.float32), passed)
