"""A model's weights by name: by where their layers stand in it, the same for every model that one function builds.

    values = {name: weight.numpy() for name, weight in named(model).items()}
    put(values, another)  # of the same function, built in whatever process

Keras numbers the layers that have no name of their own through a whole process, so their names differ between two models.
Here the numbers are others: a layer's place among those of its class within the layer around it. Names that the author of
a model has chosen stay, with their numbers. The states of random generators and of metrics are no weights.
"""

import collections
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras.src.utils.naming import to_snake_case

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


def digest(model: keras.Model) -> str:
    """Returns the SHA-256 (hexadecimal) of names, order, shapes, types and trainability of the weights, and of all tables.

    A vocabulary (`StringLookup`, `IntegerLookup`, `TextVectorization`), the boundaries of `Discretization` and the
    statistics of `Normalization` are in no checkpoint: the user's function makes them at every build, always the same.
    """
    content: list[Any] = [
        (name, tuple(weight.shape), str(weight.dtype), weight.trainable) for name, weight in named(model).items()
    ]
    for layer in model._flatten_layers():
        if hasattr(layer, "get_vocabulary"):
            content.append(("vocabulary", [str(word) for word in layer.get_vocabulary()]))
        elif isinstance(layer, keras.layers.Discretization):
            content.append(("boundaries", np.asarray(layer.bin_boundaries).tolist()))
        elif isinstance(layer, keras.layers.Normalization):
            content.append(("statistics", np.asarray(layer.mean).tolist(), np.asarray(layer.variance).tolist()))
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


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
    for name, inner in _numbered([(automatic_name(inner) or inner.name, inner) for inner in layer._layers]):
        yield from _walk(inner, f"{prefix}{name}/", walked)


def automatic_name(layer: keras.layers.Layer) -> str | None:
    """Returns the name that Keras has made for a layer, without the number; None if its author has named it.

    A name that the author has made in the same way, of the class and a number, counts as Keras' own.
    """
    # Bidirectional names its two layers after the one that it was given, such as `forward_lstm_3`.
    class_name = re.escape(to_snake_case(type(layer).__name__))
    match = re.fullmatch(rf"((?:forward_|backward_)?{class_name})(?:_\d+)?", layer.name)
    return match[1] if match else None


def _numbered(pairs: list[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    """Makes the names unique, by numbers that make none of the other names."""
    names = {name for name, _ in pairs}
    used: set[str] = set()
    counts: collections.Counter[str] = collections.Counter()
    for name, what in pairs:
        unique = name
        while unique in used or (unique in names and unique != name):
            counts[name] += 1
            unique = f"{name}_{counts[name]}"
        used.add(unique)
        yield unique, what
