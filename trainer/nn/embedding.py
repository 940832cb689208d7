"""A table of weights that parameter servers can share.

Keras 3 variables cannot be partitioned by TensorFlow, so the layer itself splits a large table into several weights,
which a parameter-server strategy places on one server after the other. Only the rows that a batch asks for, and their
gradients, travel.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

# The same on any cluster, so that a checkpoint fits every number of parameter servers.
PIECE_BYTES = 16 * 2**20


class Embedding(keras.layers.Layer):
    """Rows [N, K, size] of a table [rows, size] by their numbers [N, K].

    A table of more than `PIECE_BYTES` is held in pieces: row r is row r // pieces of piece r % pieces. So neighbours, of
    which the first of a vocabulary are the most frequent, lie on different servers.
    """

    def __init__(
        self, rows: int, size: int, *, initializer: Callable[[], keras.initializers.Initializer], **kwargs: Any
    ) -> None:
        """Args: `initializer` makes one for each piece; one that is used twice would draw the same numbers twice."""
        super().__init__(**kwargs)
        self.rows, self.size, self._initializer = rows, size, initializer

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes the pieces."""
        pieces = -(-4 * self.rows * self.size // PIECE_BYTES)
        self.pieces = [
            self.add_weight(
                name=f"embeddings_{i}",
                shape=(len(range(i, self.rows, pieces)), self.size),
                initializer=self._initializer(),
                autocast=False,
            )
            for i in range(pieces)
        ]

    def compute_output_spec(self, inputs: keras.KerasTensor) -> keras.KerasTensor:
        """One row for each number."""
        return keras.KerasTensor((*inputs.shape, self.size), self.compute_dtype)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Gathers the rows."""
        pieces = [piece.value for piece in self.pieces]
        if len(pieces) == 1:
            return tf.cast(tf.gather(pieces[0], inputs), self.compute_dtype)
        numbers = tf.reshape(inputs, [-1])
        owners = numbers % len(pieces)
        asked = tf.dynamic_partition(numbers // len(pieces), owners, len(pieces))
        places = tf.dynamic_partition(tf.range(tf.size(numbers)), owners, len(pieces))
        rows = tf.dynamic_stitch(places, [tf.gather(p, a) for p, a in zip(pieces, asked, strict=True)])
        return tf.cast(tf.reshape(rows, [*tf.unstack(tf.shape(inputs)), self.size]), self.compute_dtype)
