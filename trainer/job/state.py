"""The state of training as plain values: step, weights, optimizer slots, whatever strategy holds them.

Copies in ordinary variables stand between the live ones and everything that outlives a step:
checkpoints are written from them while training goes on, evaluation and export read their weights.
So no file and no exported model knows of the strategy, and a job may go on with another number of
replicas.
"""

import keras
import numpy as np
import tensorflow as tf

from trainer.nn import weights

_value = keras.ops.convert_to_numpy


class State:
    """Copies of the variables of the live model and optimizer; `checkpoint` holds the copies."""

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        """Expects to be outside the strategy's scope; the optimizer must be built, so that its slots exist."""
        self.model, self.optimizer = model, optimizer
        self._weights = {f"model/{name}": weight for name, weight in weights.named(model).items()}
        # By position, in the order of the model's weights: a model of another order has another
        # digest.
        slots = {f"optimizer/{i:03d}": variable for i, variable in enumerate(optimizer.variables)}
        self._live = {**self._weights, **slots}
        with tf.device("CPU:0"):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._copies = {
                name: tf.Variable(_value(v), trainable=False) for name, v in self._live.items()
            }
        self.checkpoint = tf.train.Checkpoint(step=self._step, variables=self._copies)

    def take(self, step: int) -> None:
        """Copies the live variables: the state after `step` steps."""
        self._step.assign(step)
        for name, live in self._live.items():
            self._copies[name].assign(_value(live))

    def put(self) -> int:
        """Copies back into the live variables. Every replica must do it. Returns the step."""
        for name, live in self._live.items():
            live.assign(self._copies[name])
        return self.step

    @property
    def step(self) -> int:
        """Step of the copies."""
        return int(self._step.numpy())

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the copies of the model's weights, as `trainer.nn.weights` names them."""
        return {name.removeprefix("model/"): self._copies[name].numpy() for name in self._weights}
