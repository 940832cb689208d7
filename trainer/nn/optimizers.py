"""Optimizers of Keras that are correct on several replicas, and update only used rows of tables."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


class Summing(keras.Optimizer):
    """Mixin for an optimizer of Keras that clips the sum of all replicas' gradients, by one norm.

    Keras clips each replica's part before they are added up, so that the effect of
    `global_clipnorm` would depend on the number of replicas. The arguments `clipnorm` and
    `clipvalue` have no effect.
    """

    def _clip_gradients(
        self, gradients: list[tf.Tensor | tf.IndexedSlices]
    ) -> list[tf.Tensor | tf.IndexedSlices]:
        return gradients

    def _all_reduce_sum_gradients(
        self, pairs: list[tuple[Any, tf.Variable]]
    ) -> list[tuple[Any, tf.Variable]]:
        pairs = super()._all_reduce_sum_gradients(pairs)
        if not self.global_clipnorm:
            return pairs
        gradients, variables = zip(*pairs, strict=True)
        clipped, _ = tf.clip_by_global_norm(
            [_each_row_once(g) for g in gradients], self.global_clipnorm
        )
        return list(zip(clipped, variables, strict=True))


class SGD(Summing, keras.optimizers.SGD):
    """SGD of Keras, with gradients clipped as in `Summing`."""


class Adam(Summing, keras.optimizers.Adam):
    """Adam of Keras that updates only those rows of a table that a batch has used.

    Keras would update the whole table and both its moments in every step, however large they are.
    Rows that are not used keep their moments, which do not decay meanwhile, as in the LazyAdam of
    TensorFlow Addons.
    """

    def _backend_update_step(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate: tf.Tensor
    ) -> None:
        """Updates all variables, with the rate corrected once for the moments' start at zero."""
        step, rate = tf.cast(self.iterations + 1, tf.float32), tf.cast(learning_rate, tf.float32)
        corrected = rate * tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        super()._backend_update_step(grads, trainable_variables, corrected)

    def update_step(
        self,
        gradient: tf.Tensor | tf.IndexedSlices,
        variable: tf.Variable,
        learning_rate: tf.Tensor,
    ) -> None:
        """Updates a variable, or the used rows of a table, and its moments.

        Args:
          gradient: Gradient of the variable, summed over replicas.
          variable: The variable.
          learning_rate: Rate, already corrected for the moments' start at zero.
        """
        index = self._get_variable_index(variable)
        first, second = self._momentums[index].value, self._velocities[index].value
        gradient, rate = _each_row_once(gradient), tf.cast(learning_rate, variable.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            rows, sums = gradient.indices, gradient.values
            mean, square = tf.gather(first, rows), tf.gather(second, rows)
            mean += (sums - mean) * (1 - self.beta_1)
            square += (sums**2 - square) * (1 - self.beta_2)
            first.scatter_update(tf.IndexedSlices(mean, rows))
            second.scatter_update(tf.IndexedSlices(square, rows))
            variable.scatter_sub(
                tf.IndexedSlices(rate * mean / (tf.sqrt(square) + self.epsilon), rows)
            )
        else:
            first.assign_add((gradient - first) * (1 - self.beta_1))
            second.assign_add((tf.square(gradient) - second) * (1 - self.beta_2))
            variable.assign_sub(first * rate / (tf.sqrt(second) + self.epsilon))


class AdamW(Adam, keras.optimizers.AdamW):
    """Adam with weight decay that does not pass through the moments.

    Loshchilov and Hutter 2019, arXiv:1711.05101. Every step takes rate x `weight_decay` of each
    weight that decays, also from unused rows of a table.
    """


def _each_row_once(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor | tf.IndexedSlices:
    """Returns a dense gradient unchanged, and that of a table's rows with each row only once.

    The gradients of a row that occurs several times are added: norm and square need these sums.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, which = tf.unique(gradient.indices)
    sums = tf.math.unsorted_segment_sum(gradient.values, which, tf.size(rows))
    return tf.IndexedSlices(sums, rows, gradient.dense_shape)
