import keras
import numpy as np
import tensorflow as tf

from trainer.nn.layers import Embedding
from trainer.nn.optimizers import SGD, Adam, AdamW

START = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)


def learn(optimizer, batches, dense=False):
    """Returns a table after each step of a loss that differs by row and by place in the batch.

    Keras squares each gradient of a row that occurs twice, and not their sum, unless they are
    `dense`.
    """
    layer, tables = Embedding(*START.shape, initializer=keras.initializers.Constant(START)), []
    layer.build(None)
    table = layer.table
    optimizer.build([table])
    for batch in batches:
        with tf.GradientTape() as tape:
            rows = layer(np.array(batch))
            loss = tf.reduce_sum(tf.sin(rows) * tf.range(1.0, 1 + len(batch))[:, tf.newaxis])
        gradient = tape.gradient(loss, table.value)
        optimizer.apply([tf.convert_to_tensor(gradient) if dense else gradient], [table])
        tables.append(table.numpy())
    return tables


def test_adam_of_all_rows_agrees_with_keras():
    draw = np.random.default_rng(0)
    batches = [draw.permutation([*range(6), 2, 2, 4]).tolist() for _ in range(5)]
    for ours, theirs in (
        (Adam(0.05), keras.optimizers.Adam(0.05)),
        (AdamW(0.05, weight_decay=0.5), keras.optimizers.AdamW(0.05, weight_decay=0.5)),
    ):
        expected = learn(theirs, batches, dense=True)
        np.testing.assert_allclose(learn(ours, batches), expected, rtol=1e-5)


def test_rows_outside_batch_only_decay():
    """They and their moments stay, as docs/TRAINING.md states, where Keras moves them on."""
    batches = [[0, 1], [1], [1], [0, 1]]
    first, _, third, last = learn(Adam(0.05), batches)
    np.testing.assert_array_equal(third[0], first[0])
    np.testing.assert_array_equal(last[2:], START[2:])
    # Of a row that each batch has, the moments are Keras'; those of the other have not decayed.
    expected = learn(keras.optimizers.Adam(0.05), batches)
    np.testing.assert_allclose(last[1], expected[-1][1], rtol=1e-6)
    assert not np.allclose(last[0] - third[0], expected[-1][0] - expected[-2][0])
    decayed = learn(AdamW(0.05, weight_decay=0.5), batches)[-1]
    np.testing.assert_allclose(decayed[2:], START[2:] * (1 - 0.05 * 0.5) ** 4, rtol=1e-6)


def test_clipped_norm_counts_row_once():
    """The norm does not depend on which part of the batch, or replica, parts of a row come from."""
    table, optimizer = keras.Variable(tf.zeros([6, 2])), SGD(1.0, global_clipnorm=1.0)
    optimizer.build([table])
    optimizer.apply([tf.IndexedSlices(tf.ones([3, 2]), [3, 1, 3], [6, 2])], [table])
    np.testing.assert_allclose(table[3, 0], -2 / np.sqrt(2 * 2**2 + 2 * 1))
