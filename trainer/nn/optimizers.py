"""Adam that leaves the rest of a large table alone."""

from typing import Any

import keras
import tensorflow as tf


class Adam(keras.optimizers.Adam):
    """Keras' Adam, but of a table it updates only the rows that a batch asked for.

    Keras would go through the whole table and both its moments at every step, however large they are. Rows that are not
    asked for keep their moments, which do not decay meanwhile; that is what TensorFlow Addons called LazyAdam.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._moments: dict[Any, list[keras.Variable]] = {}

    def add_variable_from_reference(
        self, reference_variable: keras.Variable, name: str | None = None, initializer: str = "zeros"
    ) -> keras.Variable:
        """Notes what Keras makes for each variable and its copies on devices: where Keras keeps it is its own affair."""
        made = super().add_variable_from_reference(reference_variable, name=name, initializer=initializer)
        whole = reference_variable.value
        parts = (whole, *tf.distribute.get_strategy().experimental_local_results(whole))
        for part in {part.ref() for part in parts}:
            self._moments.setdefault(part, []).append(made)
        return made

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, learning_rate) -> None:
        """Updates a variable, or rows of it, and its moments."""
        if not isinstance(gradient, tf.IndexedSlices):
            super().update_step(gradient, variable, learning_rate)
            return
        first, second = (moment.value for moment in self._moments[variable.ref()])
        step, rate = tf.cast(self.iterations + 1, tf.float32), tf.cast(learning_rate, tf.float32)
        scale = rate * tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        rows, which = tf.unique(gradient.indices)
        sums = tf.math.unsorted_segment_sum(gradient.values, which, tf.size(rows))
        mean, square = tf.gather(first, rows), tf.gather(second, rows)
        mean += (sums - mean) * (1 - self.beta_1)
        square += (sums**2 - square) * (1 - self.beta_2)
        first.scatter_update(tf.IndexedSlices(mean, rows))
        second.scatter_update(tf.IndexedSlices(square, rows))
        variable.scatter_sub(tf.IndexedSlices(scale * mean / (tf.sqrt(square) + self.epsilon), rows))
