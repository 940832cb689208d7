import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.nn.optimizers import SGD, Adam, AdamW

START = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)


def learn(
    optimizer: keras.optimizers.Optimizer, batches: list[list[int]], dense: bool = False
) -> list[np.ndarray]:
    """Returns a table after each step of a loss that differs from row to row and from place to place of the batch.

    Keras squares each gradient of a row that occurs twice, and not their sum, unless they are
    `dense`.
    """
    table = keras.Variable(START)
    optimizer.build([table])
    tables = []
    for batch in batches:
        with tf.GradientTape() as tape:
            rows = tf.gather(table.value, batch)
            loss = tf.reduce_sum(tf.sin(rows) * tf.range(1.0, 1 + len(batch))[:, tf.newaxis])
        gradient = tape.gradient(loss, table.value)
        optimizer.apply([tf.convert_to_tensor(gradient) if dense else gradient], [table])
        tables.append(table.numpy())
    return tables


@pytest.mark.parametrize(("kind", "options"), [("Adam", {}), ("AdamW", {"weight_decay": 0.5})])
def test_adam_of_all_rows_agrees_with_keras(kind, options):
    draw = np.random.default_rng(0)
    batches = [draw.permutation([*range(6), 2, 2, 4]).tolist() for _ in range(5)]
    ours = learn({"Adam": Adam, "AdamW": AdamW}[kind](0.05, **options), batches)
    theirs = learn(getattr(keras.optimizers, kind)(0.05, **options), batches, dense=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_adam_skips_rows_outside_batch():
    """Rows and their moments stay as they are, as docs/TRAINING.md states, where Keras moves them on."""
    batches = [[0, 1], [1], [1], [0, 1]]
    ours, theirs = learn(Adam(0.05), batches), learn(keras.optimizers.Adam(0.05), batches)
    np.testing.assert_allclose(
        [table[1] for table in ours], [table[1] for table in theirs], rtol=1e-6
    )
    np.testing.assert_array_equal(ours[2][0], ours[0][0])
    np.testing.assert_array_equal(ours[3][2:], START[2:])
    # The moments of Keras have decayed meanwhile.
    assert not np.allclose(ours[3][0] - ours[2][0], theirs[3][0] - theirs[2][0])


def test_adamw_decays_rows_outside_batch():
    decayed = learn(AdamW(0.05, weight_decay=0.5), [[0], [0, 1], [2]])
    np.testing.assert_allclose(decayed[2][5], START[5] * (1 - 0.05 * 0.5) ** 3, rtol=1e-6)


def test_clipped_norm_counts_row_once():
    """The norm does not depend on which part of the batch, or replica, the parts of a row come from."""
    table, bias = (
        keras.Variable(np.zeros((6, 2), np.float32)),
        keras.Variable(np.zeros(1, np.float32)),
    )
    optimizer = SGD(1.0, global_clipnorm=1.0)
    optimizer.build([table, bias])
    optimizer.apply(
        [tf.IndexedSlices(tf.ones([3, 2]), [3, 1, 3], [6, 2]), tf.ones([1])], [table, bias]
    )
    norm = np.sqrt(2 * 2**2 + 2 * 1 + 1)
    np.testing.assert_allclose([table[3, 0], table[1, 0], bias[0]], np.array([-2, -1, -1]) / norm)
