"""What a model is made of beside the values of its weights: their shapes, and the tables that layers are given when built.

A vocabulary (`StringLookup`, `IntegerLookup`, `TextVectorization`), the boundaries of `Discretization` and the statistics
of `Normalization` are in no checkpoint. The user's function makes them at every build; so they must be the same then, and
`digest` tells whether they are.
"""

import hashlib
import json
from typing import Any

import keras
import numpy as np

from trainer.nn import weights


def digest(model: keras.Model) -> str:
    """SHA-256 (hexadecimal) of names, order, shapes, types and trainability of the weights, and of all tables."""
    content: list[Any] = [
        (name, tuple(weight.shape), str(weight.dtype), weight.trainable)
        for name, weight in weights.named(model).items()
    ]
    for layer in model._flatten_layers():
        if hasattr(layer, "get_vocabulary"):
            content.append(("vocabulary", [str(word) for word in layer.get_vocabulary()]))
        elif isinstance(layer, keras.layers.Discretization):
            content.append(("boundaries", np.asarray(layer.bin_boundaries).tolist()))
        elif isinstance(layer, keras.layers.Normalization):
            content.append(("statistics", np.asarray(layer.mean).tolist(), np.asarray(layer.variance).tolist()))
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
