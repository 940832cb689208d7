"""Scaling of the loss, so that gradients that float16 could not hold come out of it; the same on all replicas."""

import keras
import tensorflow as tf

from trainer.nn.optimizers import Summing

_SMALLEST = 2.0**-14  # normal number of float16


class LossScale(keras.optimizers.LossScaleOptimizer):
    """Keras' own, by the gradients of all replicas together; its scale and counter are among the optimizer's variables.

    Keras looks at each replica's gradients before they are added up: those of a process would do what its first one finds,
    and of several processes one would skip a step in which another waits for it.
    """

    def __init__(self, optimizer: Summing, **options: int) -> None:
        """Args: `options` are those of Keras, by default an initial scale of 2**15, doubled after 2000 good steps."""
        super().__init__(optimizer, **options)
        optimizer.adds_up = False

    def apply(self, gradients: list[tf.Tensor | tf.IndexedSlices | None], variables: list[keras.Variable]) -> None:
        """Adds up, and steps if all is finite, in a replica context."""
        found = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
        gradients, variables = zip(*found, strict=True)
        super().apply(tf.distribute.get_replica_context().all_reduce("SUM", list(gradients)), list(variables))

    @property
    def hopeless(self) -> bool:
        """Whether so many steps have overflowed that no gradient is left in what float16 holds of the scaled ones."""
        return float(keras.ops.convert_to_numpy(self.dynamic_scale)) < _SMALLEST

    def check_finite(self, gradients: list[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
        """Whether they all are; of a table only the rows that there are."""
        values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        return tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])
