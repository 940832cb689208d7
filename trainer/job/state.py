"""Training state as plain values: step, weights and optimizer slots, independent of the strategy.

Copies in ordinary variables stand between the live variables and everything that outlives a step:
checkpoints are written from them while training goes on, and evaluation and export read their
weights. So neither files nor exported models depend on the strategy, and a job may resume with
another number of replicas.
"""

import keras
import numpy as np
import tensorflow as tf

from trainer.nn import weights

_value = keras.ops.convert_to_numpy


class State:
    """Copies of the variables of the live model and optimizer.

    Attributes:
      model: The live model.
      optimizer: The live optimizer.
      checkpoint: `tf.train.Checkpoint` of the copies.
    """

    def __init__(self, model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        """Copies the variables.

        It must be called outside the strategy's scope, and the optimizer must be built, so that its
        slots exist.
        """
        self.model, self.optimizer = model, optimizer
        self._weights = {f"model/{name}": weight for name, weight in weights.named(model).items()}
        # Slots are named by position, in the order of the model's weights. This is safe, since a
        # model with another order has another digest and is refused.
        slots = {f"optimizer/{i:03d}": variable for i, variable in enumerate(optimizer.variables)}
        self._live = {**self._weights, **slots}
        with tf.device("CPU:0"):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._copies = {
                name: tf.Variable(_value(v), trainable=False) for name, v in self._live.items()
            }
        self.checkpoint = tf.train.Checkpoint(step=self._step, variables=self._copies)

    def take(self, step: int) -> None:
        """Copies the live variables, which are the state after `step` steps."""
        self._step.assign(step)
        for name, live in self._live.items():
            self._copies[name].assign(_value(live))

    def put(self) -> int:
        """Copies the state back into the live variables, and returns its step.

        Every replica must call it.
        """
        for name, live in self._live.items():
            live.assign(self._copies[name])
        return self.step

    @property
    def step(self) -> int:
        """Step of the copies."""
        return int(self._step.numpy())

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the copies of the model's weights, by the names of `trainer.nn.weights`."""
        return {name.removeprefix("model/"): self._copies[name].numpy() for name in self._weights}
