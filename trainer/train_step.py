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

# Seconds that a call of several steps should take: long enough that Python's share is negligible,
# and short enough to stop in time.
CALL_S = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """Result of some steps."""

    steps: int  # Number of steps.
    # Sums over the steps of the batch's mean loss and of the states of the task's metrics.
    sums: tuple[float, ...]
    seconds: float  # Duration.
    warm: bool  # False for a call that may also have traced or compiled.
    stop: bool  # True if any replica has a stop request; all see it at the same step.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainStep:
    """Training step of one replica on its part of the batch."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    task: Task
    label: str  # Name of the label among the columns of a batch.
    # Examples over all replicas. Losses are divided by it and gradients are summed over replicas.
    global_batch: int
    seed: int  # Seed of dropout and other random layers.
    # Factor of half the sum of squares of the weights in `decayed`, which is added to the loss.
    weight_decay: float = 0.0
    decayed: Sequence[keras.Variable] = ()
    jit_compile: bool = False  # Whether XLA compiles all from the batch to the gradients.

    def __call__(
        self, batch: Columns, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor
    ) -> tf.Tensor:
        """Makes a step on the examples `first` to `first + count` of the global batch.

        It must be called in a replica context.

        Args:
          batch: Inputs of the model, labels, and weights if any, [count, ...] by name.
          step: Global step.
          first: Position in the global batch of the first example.
          count: Number of examples.

        Returns:
          This replica's part of the loss and of the states of the task's metrics, float32 [values].
          The sums over replicas are the mean loss over the global batch, and its states. The loss
          has what layers add to it, and not the decay of weights.

        Raises:
          UserError: If the task's loss function does not give one number for each example.
        """
        if self.jit_compile:
            # The position is a tensor, since a function would be compiled for each value of a
            # Python number. The count stays a number if it is one, for static shapes.
            values, gradients = self._compiled(batch, step, tf.cast(first, tf.int32), count)
        else:
            values, gradients = self.differentiate(batch, step, first, count)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return values

    def differentiate(
        self, batch: Columns, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor | tf.IndexedSlices | None]]:
        """Returns the values that a step returns, and the gradients of the trainable variables.

        Nothing is updated but variables that layers update themselves, such as moving statistics.

        Args:
          batch: Inputs of the model, labels, and weights if any, [count, ...] by name.
          step: Global step.
          first: Position in the global batch of the first example.
          count: Number of examples.

        Returns:
          This replica's parts of the loss and of the states of the metrics, float32 [values]; and
          its parts of the gradients of the loss with the decay of weights. A gradient is None if
          the loss does not depend on its variable.

        Raises:
          UserError: If the task's loss function does not give one number for each example.
        """
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
            # Layers add means over this replica's examples, and regularisers a value that counts
            # once for all replicas. Weighted by the replicas' parts, both add up to what one
            # replica would have.
            loss += part * randomness.total([*added, *self.model._get_regularization_losses()])
            objective = loss
            if self.weight_decay:
                objective += (
                    part
                    * self.weight_decay
                    * tf.add_n([tf.nn.l2_loss(w.value) for w in self.decayed])
                )
        # The reported loss is without the decay of weights, which is no part of the task.
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
