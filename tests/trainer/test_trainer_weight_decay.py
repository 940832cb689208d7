"""Which weights are kernels: told by what initialises them, over every layer that Keras has."""

from __future__ import annotations

import contextlib
import inspect
import types

import numpy as np
import pytest

from trainer.options import parse

keras = pytest.importorskip("keras")
from trainer import learning  # noqa: E402

KERNELS = {"kernel_initializer", "depthwise_initializer", "pointwise_initializer", "recurrent_initializer"}
VALUES = {  # of arguments that a layer must have
    **{"units": 4, "filters": 4, "kernel_size": 2, "equation": "abc,cd->abd", "output_shape": (None, 4)},
    **{"input_dim": 5, "output_dim": 4, "num_heads": 2, "key_dim": 3, "head_dim": 3, "num_query_heads": 2},
    **{"num_key_value_heads": 1},
}


def initialised() -> list[type]:
    """The layers whose weights can be given initial values."""
    kinds = {kind for kind in vars(keras.layers).values() if inspect.isclass(kind)}
    arguments = {kind: inspect.signature(kind).parameters for kind in kinds if issubclass(kind, keras.layers.Layer)}
    taken = [kind for kind, names in arguments.items() if any(name.endswith("_initializer") for name in names)]
    return sorted(taken, key=lambda kind: kind.__name__)


def make(kind: type) -> keras.layers.Layer:
    """The layer, built, with ones where an argument says that they are a kernel's, and twos elsewhere."""
    arguments = inspect.signature(kind).parameters
    values = {name: VALUES[name] for name in arguments if name in VALUES and arguments[name].default is inspect._empty}
    for name in arguments:
        if name.endswith("_initializer"):
            values[name] = keras.initializers.Constant(1.0 if name in KERNELS else 2.0)
    layer = kind(**values)
    for rank in range(2, 7):
        x = keras.KerasTensor((2, *[8] * (rank - 2), 32))
        others = [x] if "Attention" in kind.__name__ else []
        others = [[keras.KerasTensor((2, 4))] * 2] if kind.__name__.endswith("Cell") else others
        with contextlib.suppress(ValueError, TypeError, IndexError):
            layer(x, *others)
        if layer.trainable_variables:
            return layer
    raise AssertionError(f"{kind.__name__} takes no such input")


def decayed(layer: keras.layers.Layer, on: str) -> list[str]:
    flags = ["--data-dir", "d", "--job-dir", "j", "--train-steps", "1", "--model", "cnn", "--weight-decay-on", on]
    model = types.SimpleNamespace(trainable_variables=layer.trainable_variables)
    return [variable.path for variable in learning.decay(parse(flags, {}), model)[1]]


@pytest.mark.parametrize("kind", initialised(), ids=lambda kind: kind.__name__)
def test_of_every_layer_the_kernels_decay_and_nothing_else(kind):
    layer = make(kind)
    kernels = [v.path for v in layer.trainable_variables if (np.asarray(v) == 1).all()]
    assert bool(kernels) == bool(KERNELS & inspect.signature(kind).parameters.keys())
    assert decayed(layer, "kernels") == kernels
    assert decayed(layer, "all") == [v.path for v in layer.trainable_variables]


def test_of_layers_within_layers_and_of_adapters_too():
    inner = keras.layers.Bidirectional(keras.layers.RNN([keras.layers.LSTMCell(3), keras.layers.GRUCell(2)]))
    inner.build((2, 5, 4))
    names = {path.rsplit("/", 1)[-1] for path in decayed(inner, "kernels")}
    assert names == {"kernel", "recurrent_kernel"} and len(decayed(inner, "kernels")) == 8
    dense = keras.layers.Dense(4)
    dense.build((2, 4))
    dense.enable_lora(2)
    assert [path.rsplit("/", 1)[-1] for path in decayed(dense, "kernels")] == ["lora_kernel_a", "lora_kernel_b"]
