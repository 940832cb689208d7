"""Adam that leaves the rest of a large table alone."""

from __future__ import annotations

import keras
import tensorflow as tf


class Adam(keras.optimizers.Adam):
    """Keras' Adam, but of a table it updates only the rows that a batch asked for.

    Keras would go through the whole table and both its moments at every step, however large they are. Rows that are not
    asked for keep their moments, which do not decay meanwhile; that is what TensorFlow Addons called LazyAdam.
    """

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, learning_rate) -> None:
        """Updates a variable, or rows of it, and its moments."""
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        step, rate = tf.cast(self.iterations + 1, tf.float32), tf.cast(learning_rate, tf.float32)
        scale = rate * tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        slot = self._get_variable_index(variable)
        first, second = self._momentums[slot].value, self._velocities[slot].value
        rows, which = tf.unique(gradient.indices)
        sums = tf.math.unsorted_segment_sum(gradient.values, which, tf.size(rows))
        mean, square = tf.gather(first, rows), tf.gather(second, rows)
        mean += (sums - mean) * (1 - self.beta_1)
        square += (sums**2 - square) * (1 - self.beta_2)
        first.scatter_update(tf.IndexedSlices(mean, rows))
        second.scatter_update(tf.IndexedSlices(square, rows))
        variable.scatter_sub(tf.IndexedSlices(scale * mean / (tf.sqrt(square) + self.epsilon), rows))
