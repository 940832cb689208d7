"""A model's weights by name: by where their layers stand in it, the same for every model that one function builds.

    values = {name: weight.numpy() for name, weight in named(model).items()}
    put(values, another)  # of the same function, built in whatever process

Keras numbers the names of layers through a whole process, so they differ between two models. Here the numbers are others:
a layer's place among those of its name within the layer around it. The states of random generators and of metrics are no
weights.
"""

import collections
import re
from collections.abc import Iterator, Mapping, Sequence

import keras
import numpy as np

_TOLD_NAMES = 5


def named(model: keras.layers.Layer) -> dict[str, keras.Variable]:
    """The weights by name, of a model or of a layer alone; one that several layers share has the name of the first."""
    found: dict[int, tuple[str, keras.Variable]] = {}
    for name, weight in _walk(model, "", set()):
        found.setdefault(id(weight), (name, weight))
    return dict(found.values())


def names(model: keras.layers.Layer) -> dict[int, str]:
    """The names of `named` by the identity of the weight."""
    return {id(weight): name for name, weight in named(model).items()}


def put(values: Mapping[str, np.ndarray], model: keras.Model) -> None:
    """Assigns the values to the weights of their names."""
    weights = named(model)
    if weights.keys() != values.keys():
        raise ValueError(
            f"one model has weights that another has not: {', '.join(sorted(weights.keys() ^ values.keys()))}"
        )
    for name, weight in weights.items():
        weight.assign(values[name])


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _TOLD_NAMES
    return ", ".join(names[:_TOLD_NAMES]) + (f" and {more} more" if more > 0 else "")


def _walk(layer: keras.layers.Layer, prefix: str, walked: set[int]) -> Iterator[tuple[str, keras.Variable]]:
    if id(layer) in walked:
        return
    walked.add(id(layer))
    # These, and not `dir`, are where Keras has them from for `Layer.weights`.
    own = [*layer._trainable_variables, *layer._non_trainable_variables]
    for name, weight in _numbered([(weight.name, weight) for weight in own]):
        yield f"{prefix}{name}", weight
    for name, inner in _numbered([(unnumbered(inner.name), inner) for inner in layer._layers]):
        yield from _walk(inner, f"{prefix}{name}/", walked)


def unnumbered(name: str) -> str:
    """A layer's name without numbers, wherever in it: `forward_lstm_3` is one that Keras has made of `lstm_3`."""
    return re.sub(r"_\d+(?=_|$)", "", name)


def _numbered(pairs: list[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    counts: collections.Counter[str] = collections.Counter()
    for name, what in pairs:
        number = counts[name]
        counts[name] += 1
        yield f"{name}_{number}" if number else name, what
