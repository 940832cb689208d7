import keras
import numpy as np
import tensorflow as tf

from trainer.nn.optimizers import SGD, Adam, AdamW

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
    ours = learn(AdamW(0.05, weight_decay=0.5), batches)
    theirs = learn(keras.optimizers.AdamW(0.05, weight_decay=0.5), batches, dense=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_row_that_is_left_out_decays_all_the_same():
    ours = learn(AdamW(0.05, weight_decay=0.5), [[0], [0, 1], [2]])
    kept = learn(AdamW(0.05, weight_decay=0.0), [[0], [0, 1], [2]])
    np.testing.assert_allclose(ours[2][5], kept[2][5] * (1 - 0.05 * 0.5) ** 3, rtol=1e-6)


def test_the_norm_that_is_clipped_counts_a_row_of_a_table_once():
    """As if the gradient were dense: from which part of the batch, or replica, a row's parts come is no matter."""
    table, bias = keras.Variable(np.zeros((ROWS, 2), np.float32)), keras.Variable(np.zeros(1, np.float32))
    optimizer = SGD(1.0, global_clipnorm=1.0)
    optimizer.build([table, bias])
    optimizer.apply([tf.IndexedSlices(tf.ones([3, 2]), [3, 1, 3], [ROWS, 2]), tf.ones([1])], [table, bias])
    norm = np.sqrt(2 * 2**2 + 2 * 1 + 1)
    np.testing.assert_allclose([table.numpy()[3, 0], table.numpy()[1, 0], bias.numpy()[0]], -np.array([2, 1, 1]) / norm)


def test_a_row_that_is_left_out_keeps_its_place_and_moments_where_keras_moves_it_on():
    """As docs/TRAINING.md says."""
    batches = [[0, 1], [1], [1], [0, 1]]
    ours, theirs = learn(Adam(0.05), batches), learn(keras.optimizers.Adam(0.05), batches)
    np.testing.assert_allclose([row[1] for row in ours], [row[1] for row in theirs], rtol=1e-6)
    assert np.array_equal(ours[0][0], ours[2][0])
    assert np.array_equal(ours[3][2:], np.random.default_rng(1).normal(size=(ROWS, SIZE)).astype(np.float32)[2:])
    moved = np.abs(theirs[2][0] - theirs[0][0])
    assert (moved > 0.05).all()  # more than another step, by the moments alone
    assert not np.allclose(ours[3][0] - ours[2][0], theirs[3][0] - theirs[2][0])  # whose moments have decayed
