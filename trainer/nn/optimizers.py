"""Keras' optimizers, right on several replicas; Adam leaves the rest of a table alone."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


class Summing:
    """Before an optimizer of Keras: clips what the gradients of all replicas add up to, by one norm over all of them.

    Keras clips each replica's part before they are added up, so what `global_clipnorm` means would
    depend on their number.
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
    """Keras' own."""


class Adam(Summing, keras.optimizers.Adam):
    """Keras' Adam, but of a table it updates only the rows that a batch asked for.

    Keras would go through the whole table and both its moments at every step, however large they
    are. Rows that are not asked for keep their moments, which do not decay meanwhile; that is what
    TensorFlow Addons called LazyAdam.
    """

    def _backend_update_step(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate
    ) -> None:
        """Corrects the rate for the moments' beginning at zero: once, and not for each variable, as Keras does."""
        step, rate = tf.cast(self.iterations + 1, tf.float32), tf.cast(learning_rate, tf.float32)
        corrected = rate * tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        super()._backend_update_step(grads, trainable_variables, corrected)

    def update_step(
        self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, learning_rate
    ) -> None:
        """Updates a variable, or rows of it, and its moments, by a rate that is corrected."""
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
    """The same with decay that does not go through the moments (Loshchilov and Hutter 2019, arXiv:1711.05101).

    Every step takes rate x `weight_decay` of each weight that decays; of a table, from all of its
    rows.
    """


def _each_row_once(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor | tf.IndexedSlices:
    """The gradient; of a table, with the sum of what there is for each row, as its norm and its square need it."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, which = tf.unique(gradient.indices)
    sums = tf.math.unsorted_segment_sum(gradient.values, which, tf.size(rows))
    return tf.IndexedSlices(sums, rows, gradient.dense_shape)
