import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.nn import layers


def make(rows: int, size: int, piece_bytes: int, monkeypatch, **kwargs) -> layers.Embedding:
    monkeypatch.setattr(layers, "PIECE_BYTES", piece_bytes)
    layer = layers.Embedding(rows, size, initializer=keras.initializers.RandomNormal, **kwargs)
    layer.build((None, 1))
    return layer


def whole(layer: layers.Embedding) -> np.ndarray:
    table = np.empty((layer.rows, layer.size), np.float32)
    for i, piece in enumerate(layer.pieces):
        table[i :: len(layer.pieces)] = piece.numpy()
    return table


@settings(max_examples=settings.default.max_examples // 3)
@given(rows=st.integers(1, 40), size=st.integers(1, 3), piece_rows=st.integers(1, 40), seed=st.integers(0, 99))
def test_pieces_look_up_and_learn_as_one_table_does(rows, size, piece_rows, seed):
    with pytest.MonkeyPatch.context() as patch:
        layer = make(rows, size, 4 * size * piece_rows, patch)
    assert len(layer.pieces) == -(-rows // piece_rows)
    table = tf.Variable(whole(layer))
    numbers = np.random.default_rng(seed).integers(0, rows, (5, 2), np.int32)
    weight = np.random.default_rng(seed).normal(size=(5, 2, size)).astype(np.float32)
    with tf.GradientTape(persistent=True) as tape:
        ours, plain = layer(numbers), tf.gather(table, numbers)
        losses = [tf.reduce_sum(weight * rows**2) for rows in (ours, plain)]
    np.testing.assert_array_equal(ours, plain)
    variables = [piece.value for piece in layer.pieces]
    gradients = tape.gradient(losses[0], variables)
    assert all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
    expected = tf.convert_to_tensor(tape.gradient(losses[1], table)).numpy()
    for i, gradient in enumerate(gradients):
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected[i :: len(variables)], rtol=1e-6)


def test_no_piece_is_larger_than_the_bound_and_none_has_the_numbers_of_another(monkeypatch):
    layer = make(1000, 8, 4 * 8 * 100, monkeypatch, dtype="mixed_bfloat16")
    assert [piece.shape for piece in layer.pieces] == [(100, 8)] * 10
    assert len(np.unique(whole(layer), axis=0)) == 1000
    assert layer.pieces[0].dtype == "float32" and layer(np.array([[3]], np.int32)).dtype == tf.bfloat16
