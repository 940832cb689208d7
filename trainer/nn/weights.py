"""Weights of a model by names that are the same for every model that one function builds.

    values = {name: weight.numpy() for name, weight in named(model).items()}
    put(values, another)  # of the same function, built in whatever process

Keras numbers the layers without a name through a whole process, so their names differ between two
models. Here the number is a layer's place among those of its class within the layer around it, as
in `dense:1`. Names that the author of a model has chosen stay, with their numbers. States of random
generators and of metrics are not weights.
"""

import collections
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras.src.utils.naming import to_snake_case


def named(model: keras.layers.Layer) -> dict[str, keras.Variable]:
    """Returns the weights of a model or a layer, by name.

    A name is the path of layers below the model and the weight's own name, such as `dense/kernel`.
    Numbers in names that Keras has made are left out; equal names in one layer become `dense`,
    `dense:1` and so on. A weight that layers share appears once, under the first layer's path.
    """
    weights: dict[str, keras.Variable] = {}
    seen = {id(model)}

    def walk(layer: keras.layers.Layer, prefix: str) -> None:
        # `Layer.weights` of Keras takes them from these attributes too.
        items = [
            (weight.name, weight)
            for weight in (*layer._trainable_variables, *layer._non_trainable_variables)
        ]
        items += [(automatic_name(inner) or inner.name, inner) for inner in layer._layers]
        counts: collections.Counter[str] = collections.Counter()
        for name, item in items:
            # The colon keeps these numbers apart from those in names by Keras, which have none.
            path = f"{prefix}{name}:{counts[name]}" if counts[name] else f"{prefix}{name}"
            counts[name] += 1
            if id(item) in seen:
                continue
            seen.add(id(item))
            if isinstance(item, keras.Variable):
                weights[path] = item
            else:
                walk(item, f"{path}/")

    walk(model, "")
    return weights


def put(values: Mapping[str, np.ndarray], model: keras.Model) -> None:
    """Assigns values to all weights of a model.

    Args:
      values: Values by the names that `named` gives the weights.
      model: The model.

    Raises:
      ValueError: If the names are not exactly those of the model's weights, or a shape differs.
    """
    weights = named(model)
    if weights.keys() != values.keys():
        raise ValueError(
            "one model has weights that another has not: "
            f"{', '.join(sorted(weights.keys() ^ values.keys()))}"
        )
    for name, weight in weights.items():
        weight.assign(values[name])


def digest(model: keras.Model) -> str:
    """Returns a SHA-256 (hexadecimal) of a model's weights, without their values, and tables.

    It is over names, order, shapes, types and trainability of the weights, and over the constants
    that no checkpoint has because the user's function makes them at every build: vocabularies
    (`StringLookup`, `IntegerLookup`, `TextVectorization`), the boundaries of `Discretization` and
    the statistics of `Normalization`.
    """
    content: list[Any] = [
        (name, tuple(weight.shape), str(weight.dtype), weight.trainable)
        for name, weight in named(model).items()
    ]
    for layer in model._flatten_layers():
        if hasattr(layer, "get_vocabulary"):
            content.append([str(word) for word in layer.get_vocabulary()])
        elif isinstance(layer, (keras.layers.Discretization, keras.layers.Normalization)):
            constants = (
                getattr(layer, name, None) for name in ("bin_boundaries", "mean", "variance")
            )
            content.append([np.asarray(value).tolist() for value in constants])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def automatic_name(layer: keras.layers.Layer) -> str | None:
    """Returns the name, without its number, that Keras has made for a layer; None for another name.

    A name of the same form that the author has given, of class and number, counts as made by Keras.
    """
    # Keras' Bidirectional names its two layers after the
    # one that it is given, as in `forward_lstm_3`.
    class_name = re.escape(to_snake_case(type(layer).__name__))
    match = re.fullmatch(rf"((?:forward_|backward_)?{class_name})(?:_\d+)?", layer.name)
    return match[1] if match else None
