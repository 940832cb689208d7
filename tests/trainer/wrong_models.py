"""Models that would be trained wrong, or not at all: `--model wrong_models:softmax`. Each says what it is told."""

import functools
import itertools
from collections.abc import Callable

import keras
import tensorflow as tf

from common.manifest import Manifest

L = keras.layers
_BUILT = itertools.count()


def _with(
    *layers, units: int = 10, activation: str | None = None, last: tuple = ()
) -> keras.Sequential:
    ends = [L.Dense(units, activation), *last]
    return keras.Sequential([L.Rescaling(1 / 16), L.Flatten(), *layers, *ends])


def _giving(outputs: Callable[[keras.KerasTensor], object]) -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    return keras.Model(inputs, outputs(L.Flatten()(inputs)))


def _untrained() -> keras.Sequential:
    model = _with()
    model.trainable = False
    return model


def _words() -> keras.Sequential:
    words = ["1", "2"] if next(_BUILT) % 2 else ["2", "1"]
    return _with(Texts(), L.StringLookup(vocabulary=words, output_mode="one_hot"))


class OverBatch(L.Layer):
    def call(self, x):
        return tf.reduce_mean(x, axis=0, keepdims=True)

    def compute_output_shape(self, shape):
        return shape


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return {}


class Cut(L.Layer):
    def call(self, x):
        return tf.stop_gradient(x)


class Texts(L.Layer):
    """The first pixel of an image as a word."""

    def call(self, x):
        return tf.strings.as_string(tf.cast(x[:, 0] * 16, tf.int32))

    def compute_output_spec(self, x):
        return keras.KerasTensor((x.shape[0],), "string")


LOGITS = "and the task takes [32, 10], logits"
# By the name of the function what it builds, and what is said of that.
REFUSED = {
    "softmax": (
        lambda: _with(activation="softmax"),
        "its outputs are probabilities already (by Softmax), and the loss takes logits; leave out "
        "the last activation",
    ),
    "softmax_layer": (
        lambda: _with(last=(L.Softmax(), L.Reshape((10,)))),
        "probabilities already (by Softmax)",
    ),
    "sigmoid": (
        lambda: _with(last=(L.Activation("sigmoid"),)),
        "its outputs are probabilities already (by Sigmoid)",
    ),
    "narrow": (lambda: _with(units=1), f"its outputs are (32, 1), {LOGITS}, one for each class"),
    "images": (
        lambda: keras.Sequential([L.Rescaling(1 / 16), L.Dense(10)]),
        f"its outputs are (32, 8, 8, 10), {LOGITS}",
    ),
    "over_batch": (lambda: _with(last=(OverBatch(),)), "its outputs are (1, 10)"),
    "two_outputs": (
        lambda: _giving(lambda x: [L.Dense(10)(x), L.Dense(10)(x)]),
        f"its outputs are ['(32, 10)', '(32, 10)'], {LOGITS}",
    ),
    "own_step": (
        lambda: OwnStep([L.Flatten(), L.Dense(10)]),
        "has a train_step of its own, which is not called here",
    ),
    "no_model": (lambda: L.Dense(10), "gives a Dense, which is no keras.Model"),
    "cut": (lambda: _with(last=(Cut(),)), "no weight has a gradient"),
    "nothing": (_untrained, "no weight has a gradient"),
    "without_end": (
        lambda: _with(last=(L.Rescaling(float("inf")),)),
        "the loss of the untrained model is nan",
    ),
    "vocabulary": (
        _words,
        "it has other weights, vocabularies or statistics each time that it is built",
    ),
}
SAID = {name: said.lower() for name, (_, said) in REFUSED.items()}


def _build(make: Callable[[], object], manifest: Manifest) -> object:
    return make()


globals().update({name: functools.partial(_build, make) for name, (make, _) in REFUSED.items()})
