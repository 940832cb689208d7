from __future__ import annotations

import numpy as np
import pytest

keras = pytest.importorskip("keras")
import tensorflow as tf  # noqa: E402

from trainer.nn.optimizers import Adam  # noqa: E402

ROWS, SIZE, STEPS = 6, 3, 5


def learn(optimizer: keras.optimizers.Optimizer, batches: list[list[int]], dense: bool = False) -> list[np.ndarray]:
    """The table after each step of a loss that differs from row to row and from place to place of the batch.

    Of a row that is asked for twice Keras squares each gradient and not their sum, unless they are `dense`.
    """
    table = keras.Variable(np.random.default_rng(1).normal(size=(ROWS, SIZE)).astype(np.float32))
    optimizer.build([table])
    seen = []
    for batch in batches:
        with tf.GradientTape() as tape:
            rows = tf.gather(table.value, batch)
            loss = tf.reduce_sum(tf.sin(rows) * tf.range(1.0, 1 + len(batch))[:, tf.newaxis])
        gradient = tape.gradient(loss, table.value)
        assert isinstance(gradient, tf.IndexedSlices)
        optimizer.apply([tf.convert_to_tensor(gradient) if dense else gradient], [table])
        seen.append(table.numpy())
    return seen


def test_it_is_keras_adam_where_every_row_is_asked_for_however_often():
    batches = [np.random.default_rng(step).permutation([*range(ROWS), 2, 2, 4]).tolist() for step in range(STEPS)]
    ours, theirs = learn(Adam(0.05), batches), learn(keras.optimizers.Adam(0.05), batches, dense=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_rows_that_are_not_asked_for_stay_as_they_are():
    batches = [[0, 1], [1, 1], [5]]
    before = np.random.default_rng(1).normal(size=(ROWS, SIZE)).astype(np.float32)
    for batch, after in zip(batches, learn(Adam(0.05), batches), strict=True):
        changed = np.flatnonzero((after != before).any(axis=1))
        assert changed.tolist() == sorted(set(batch))
        before = after
