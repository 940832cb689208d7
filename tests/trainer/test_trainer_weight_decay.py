"""Weights that decay, in layers of every kind."""

import types

import keras
import pytest

from trainer import learning
from trainer.options import parse

L, IMAGES, TEXTS = keras.layers, (2, 8, 8, 4), (2, 8, 4)
ADAPTED = L.Dense(4)
ADAPTED.build((2, 4))
ADAPTED.enable_lora(2)


@pytest.mark.parametrize(
    ("layer", "shapes", "kernels"),
    [
        (L.Dense(4), [(2, 4)], ["kernel"]),
        (L.SeparableConv2D(4, 2), [IMAGES], ["depthwise_kernel", "pointwise_kernel"]),
        (
            L.Bidirectional(L.RNN([L.LSTMCell(3), L.GRUCell(2)])),
            [TEXTS],
            ["kernel", "recurrent_kernel"] * 4,
        ),
        (L.MultiHeadAttention(2, 3), [TEXTS, TEXTS], ["kernel"] * 4),
        (ADAPTED, [], ["lora_kernel_a", "lora_kernel_b"]),
        (L.BatchNormalization(), [IMAGES], []),
        (L.PReLU(), [IMAGES], []),
        (L.Embedding(5, 4), [(2, 8)], []),
    ],
)
def test_only_kernels_decay(layer, shapes, kernels):
    if shapes:
        layer.build(*shapes)
    flags = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "1", "--model", "cnn"]
    model = types.SimpleNamespace(trainable_variables=layer.trainable_variables)
    _, decayed = learning.decay(parse(flags, {}), model)
    assert [variable.path.rsplit("/", 1)[-1] for variable in decayed] == kernels
