import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.nn.optimizers import SGD, Adam, AdamW

START = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)


def learn(
    optimizer: keras.optimizers.Optimizer, batches: list[list[int]], dense: bool = False
) -> list[np.ndarray]:
    """Returns a table after each step of a loss that differs by row and by place in the batch.

    Keras squares each gradient of a row that occurs twice, and not their sum, unless they are
    `dense`.
    """
    table, tables = keras.Variable(START), []
    optimizer.build([table])
    for batch in batches:
        with tf.GradientTape() as tape:
            rows = tf.gather(table.value, batch)
            loss = tf.reduce_sum(tf.sin(rows) * tf.range(1.0, 1 + len(batch))[:, tf.newaxis])
        gradient = tape.gradient(loss, table.value)
        optimizer.apply([tf.convert_to_tensor(gradient) if dense else gradient], [table])
        tables.append(table.numpy())
    return tables


@pytest.mark.parametrize(
    ("ours", "theirs", "options"),
    [
        (Adam, keras.optimizers.Adam, {}),
        (AdamW, keras.optimizers.AdamW, {"weight_decay": 0.5}),
    ],
)
def test_adam_of_all_rows_agrees_with_keras(ours, theirs, options):
    draw = np.random.default_rng(0)
    batches = [draw.permutation([*range(6), 2, 2, 4]).tolist() for _ in range(5)]
    expected = learn(theirs(0.05, **options), batches, dense=True)
    np.testing.assert_allclose(learn(ours(0.05, **options), batches), expected, rtol=1e-5)


def test_adam_skips_rows_outside_batch():
    """They and their moments stay, as docs/TRAINING.md states, where Keras moves them on."""
    first, _, third, last = learn(Adam(0.05), [[0, 1], [1], [1], [0, 1]])
    np.testing.assert_array_equal(third[0], first[0])
    np.testing.assert_array_equal(last[2:], START[2:])
    # Of a row that each batch has, the moments are Keras'; those of the other have not decayed.
    expected = learn(keras.optimizers.Adam(0.05), [[0, 1], [1], [1], [0, 1]])
    np.testing.assert_allclose(last[1], expected[-1][1], rtol=1e-6)
    assert not np.allclose(last[0] - third[0], expected[-1][0] - expected[-2][0])


def test_adamw_decays_rows_outside_batch():
    decayed = learn(AdamW(0.05, weight_decay=0.5), [[0], [0, 1], [2]])
    np.testing.assert_allclose(decayed[2][5], START[5] * (1 - 0.05 * 0.5) ** 3, rtol=1e-6)


def test_clipped_norm_counts_row_once():
    """The norm does not depend on which part of the batch, or replica, parts of a row come from."""
    table, optimizer = keras.Variable(tf.zeros([6, 2])), SGD(1.0, global_clipnorm=1.0)
    optimizer.build([table])
    optimizer.apply([tf.IndexedSlices(tf.ones([3, 2]), [3, 1, 3], [6, 2])], [table])
    norm = np.sqrt(2 * 2**2 + 2 * 1)
    np.testing.assert_allclose([table[3, 0], table[1, 0]], np.array([-2, -1]) / norm)
