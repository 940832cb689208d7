import keras
import numpy as np
import tensorflow as tf

from trainer.nn.layers import Embedding


def test_embedding_learns_only_the_rows_it_gathers():
    layer = Embedding(40, 3, initializer=keras.initializers.RandomNormal())
    layer.build((None, 2))
    numbers = np.array([[3, 11], [12, 3]], np.int32)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(numbers) ** 2)
    gradient = tape.gradient(loss, layer.table.value)
    np.testing.assert_array_equal(layer(numbers), layer.table.numpy()[numbers])
    assert isinstance(gradient, tf.IndexedSlices) and gradient.indices.numpy().tolist() == [3, 11, 12, 3]


def test_embedding_table_is_float32_in_bfloat16():
    layer = Embedding(40, 3, initializer=keras.initializers.RandomNormal(), dtype="mixed_bfloat16")
    assert layer(np.array([[3]], np.int32)).dtype == tf.bfloat16 and layer.table.dtype == "float32"
