"""One training step of one replica: forward pass, loss, gradients, update."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from trainer.cluster import collectives
from trainer.data.example_weights import WEIGHT
from trainer.data.features import Columns
from trainer.nn import randomness
from trainer.tasks.task import Task

# Seconds that a call of several steps should take: long enough for Python to cost nothing, short
# enough to stop in time.
CALL_S = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """Result of some steps."""

    steps: int
    sums: tuple[
        float, ...
    ]  # over the steps: the loss, the mean over its batch, and the states of the task's metrics
    seconds: float
    warm: bool  # whether this was ordinary training; the first call also traces and compiles
    stop: bool  # whether any replica was told to stop; all of them see it at the same step


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainStep:
    """One step of one replica on its share of the batch: differentiate, update."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    task: Task
    label: str
    global_batch: (
        int  # examples over all replicas: the loss is divided by it, the gradients are summed
    )
    seed: int  # of dropout
    weight_decay: float = (
        0.0  # times half the sum of squares of the decayed weights, added to what is minimised
    )
    decayed: Sequence[keras.Variable] = ()
    jit_compile: bool = False  # whether XLA compiles what is between the batch and the gradients

    def __call__(
        self, batch: Columns, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor
    ) -> tf.Tensor:
        """Runs in a replica context, on the examples `first` to `first + count` of the global batch.

        Returns this replica's share of the loss and of the states of the task's metrics, [values]:
        over the replicas they add up to the mean over the global batch, and to its states.
        """
        if self.jit_compile:
            # The position as a tensor, or each replica's would be compiled apart; the count is
            # static where it can be.
            values, gradients = self._compiled(batch, step, tf.cast(first, tf.int32), count)
        else:
            values, gradients = self.differentiate(batch, step, first, count)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return values

    def differentiate(
        self, batch: Columns, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor | tf.IndexedSlices | None]]:
        """Returns these values, and this replica's part of the gradients of the trainable variables."""
        features = dict(batch)
        labels, weights = features.pop(self.label), features.pop(WEIGHT, None)
        part = tf.cast(count, tf.float32) / self.global_batch
        with (
            tf.GradientTape() as tape,
            randomness.deterministic_context(seed=self.seed, step=step, first=first) as added,
        ):
            outputs = self.model(features, training=True)
            loss, valid = self.task.loss_sum(labels, outputs, weights)
            divisor = self.global_batch if valid is None else collectives.sum_over_replicas(valid)
            loss = tf.math.divide_no_nan(loss, divisor)
            # Layers add means over this replica's examples, regularisers what counts once: over all
            # replicas, by their parts.
            loss += part * randomness.total([*added, *self.model._get_regularization_losses()])
            objective = loss
            if self.weight_decay:
                objective += (
                    part
                    * self.weight_decay
                    * tf.add_n([tf.nn.l2_loss(w.value) for w in self.decayed])
                )
        states = self.task.states(labels, outputs)
        return tf.concat([[loss], *states], 0), tape.gradient(
            objective, self.model.trainable_variables
        )

    @functools.cached_property
    def _compiled(
        self,
    ) -> Callable[..., tuple[tf.Tensor, list[tf.Tensor | tf.IndexedSlices | None]]]:
        return tf.function(self.differentiate, jit_compile=True, autograph=False)

    @property
    def values(self) -> int:
        """Number of values that a step returns."""
        return 1 + self.task.num_states
