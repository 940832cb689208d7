"""The state of training as plain values: step, weights, optimizer slots, whatever strategy holds them.

Copies in ordinary variables stand between the live ones and everything that outlives a step: checkpoints are written
from them while training goes on, evaluation and export read their weights. So no file and no exported model knows of
the strategy, and a job may go on with another number of replicas.
"""

from collections.abc import Iterable

import keras
import tensorflow as tf


class State:
    """Copies of the variables of the live model and optimizer, and the way between; `checkpoint` has the copies."""

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        """To be made outside the strategy's scope; the optimizer must be built, so that its slots exist."""
        self.model, self.optimizer = model, optimizer
        self._live = [*_named("model", model.variables), *_named("optimizer", optimizer.variables)]
        self._weights = len(model.weights)
        with tf.device("CPU:0"):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._copies = {name: tf.Variable(_value(live), trainable=False) for name, live in self._live}
        self.checkpoint = tf.train.Checkpoint(step=self._step, variables=self._copies)

    def take(self, step: int) -> None:
        """Copies the live variables: the state after `step` steps."""
        self._step.assign(step)
        for name, live in self._live:
            self._copies[name].assign(_value(live))

    def put(self) -> int:
        """Copies back into the live variables. Every replica must do it. Returns the step."""
        for name, live in self._live:
            live.assign(self._copies[name])
        return self.step

    @property
    def step(self) -> int:
        """Of the copies."""
        return int(self._step.numpy())

    def weights(self) -> list[tf.Tensor]:
        """The copies of the model's weights, in the order of `model.weights`."""
        return [self._copies[name].numpy() for name, _ in self._live[: self._weights]]


def _named(prefix: str, variables: Iterable[keras.Variable]) -> list[tuple[str, keras.Variable]]:
    # By position: Keras numbers its own names through the whole process, whatever else was built in it.
    return [(f"{prefix}_{i:03d}", variable) for i, variable in enumerate(variables)]


def _value(variable: keras.Variable) -> tf.Tensor:
    return keras.ops.convert_to_numpy(variable)
