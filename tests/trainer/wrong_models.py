"""Models that would be trained wrong, or not at all: `--model wrong_models:softmax`."""

import itertools

import keras

L = keras.layers
_BUILT = itertools.count()


def _with(*layers, units=10, last=()):
    return keras.Sequential([L.Rescaling(1 / 16), L.Flatten(), *layers, L.Dense(units), *last])


def _words():
    words = [1, 2] if next(_BUILT) % 2 else [2, 1]
    return _with(L.IntegerLookup(vocabulary=words, output_mode="multi_hot"))


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return {}


# By the name of the function what it builds, and what is said of that.
REFUSED = {
    "softmax": (
        lambda: _with(last=(L.Softmax(), L.Reshape((10,)))),
        "its outputs are probabilities already (by Softmax), and the loss takes logits",
    ),
    "narrow": (lambda: _with(units=1), "its outputs are (32, 1), and the task takes [32, 10]"),
    "own_step": (lambda: OwnStep([L.Dense(10)]), "has a train_step of its own"),
    "no_model": (lambda: L.Dense(10), "gives a Dense, which is no keras.Model"),
    "nothing": (
        lambda: keras.Sequential([L.Flatten(), L.Dense(10, trainable=False)]),
        "no weight has a gradient",
    ),
    "endless": (lambda: _with(last=(L.Rescaling(float("inf")),)), "untrained model is nan"),
    "vocabulary": (_words, "it has other weights, vocabularies or statistics each time"),
}


def __getattr__(name):
    if name not in REFUSED:
        raise AttributeError(name)
    return lambda manifest: REFUSED[name][0]()
