"""Which weights are kernels, of layers of every kind."""

import types

import keras
import pytest

from trainer import learning
from trainer.options import parse

L, IMAGES, TEXTS = keras.layers, (2, 8, 8, 4), (2, 8, 4)


def decayed(layer: keras.layers.Layer) -> list[str]:
    flags = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "1", "--model", "cnn"]
    model = types.SimpleNamespace(trainable_variables=layer.trainable_variables)
    return [variable.path.rsplit("/", 1)[-1] for variable in learning.decay(parse(flags, {}), model)[1]]


@pytest.mark.parametrize(
    ("layer", "shape", "kernels"),
    [
        (L.Dense(4), (2, 4), ["kernel"]),
        (L.EinsumDense("abc,cd->abd", output_shape=(None, 4), bias_axes="d"), TEXTS, ["kernel"]),
        (L.Conv2D(4, 2), IMAGES, ["kernel"]),
        (L.Conv1DTranspose(4, 2), TEXTS, ["kernel"]),
        (L.DepthwiseConv2D(2), IMAGES, ["kernel"]),
        (L.SeparableConv2D(4, 2), IMAGES, ["depthwise_kernel", "pointwise_kernel"]),
        (L.LSTM(3), TEXTS, ["kernel", "recurrent_kernel"]),
        (L.Bidirectional(L.RNN([L.LSTMCell(3), L.GRUCell(2)])), TEXTS, ["kernel", "recurrent_kernel"] * 4),
        (L.BatchNormalization(), IMAGES, []),
        (L.LayerNormalization(), TEXTS, []),
        (L.PReLU(), IMAGES, []),
        (L.Embedding(5, 4), (2, 8), []),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_kernels_decay_and_nothing_else(layer, shape, kernels):
    layer.build(shape)
    assert decayed(layer) == kernels


def test_those_of_layers_within_layers_and_of_adapters_do_too():
    attention = L.MultiHeadAttention(2, 3)
    attention.build(TEXTS, TEXTS)
    assert decayed(attention) == ["kernel"] * 4
    dense = L.Dense(4)
    dense.build((2, 4))
    dense.enable_lora(2)
    assert decayed(dense) == ["lora_kernel_a", "lora_kernel_b"]
