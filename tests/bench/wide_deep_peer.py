"""The wide and deep model of a table as one usually writes it with Keras: a layer for each feature.

    model = ordinary_model(manifest, hidden_units=(128, 64, 32))
    model.compile(...)
    model.fit(ordinary_columns(manifest, columns), labels, batch_size=128)

The columns are normalised, looked up and hashed beforehand, so that training alone is compared:
with Keras' preprocessing layers inside the model, `fit` would do that again for every batch.
"""

from collections.abc import Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from common.manifest import Encoding, Manifest
from trainer.data import column_encodings


def ordinary_columns(manifest: Manifest, columns: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    """What `ordinary_model` takes, from the columns of a split: float32 or int32 [N] for each encoding."""
    taken = {}
    for name, encoding in _encodings(manifest):
        values = columns[encoding.columns[0]].numpy()
        if encoding.kind == "numeric":
            statistics = manifest.feature(encoding.columns[0]).statistics
            taken[name] = ((values - statistics.mean) / (statistics.std or np.inf)).astype(
                np.float32
            )
        else:
            taken[name] = column_encodings.category(encoding, columns).numpy().astype(np.int32)
    return taken


def ordinary_model(manifest: Manifest, *, hidden_units: tuple[int, ...]) -> keras.Model:
    """The network of `trainer.models.wide_deep`; logits [N, classes]."""
    layers, classes = keras.layers, len(manifest.class_names)
    inputs: dict[str, keras.KerasTensor] = {}
    deep: list[keras.KerasTensor] = []
    wide: list[keras.KerasTensor] = []
    for name, encoding in _encodings(manifest):
        dtype = "float32" if encoding.kind == "numeric" else "int32"
        x = inputs[name] = keras.Input((), dtype=dtype, name=name)
        if name.startswith("wide") and encoding.kind == "numeric":
            linear = layers.Dense(classes, use_bias=False, name=f"{name}_weights")
            wide.append(linear(layers.Reshape((1,))(x)))
        elif name.startswith("wide"):
            zeros = {"embeddings_initializer": "zeros"}
            wide.append(
                layers.Embedding(encoding.categories, classes, name=f"{name}_weights", **zeros)(x)
            )
        elif encoding.kind == "numeric":
            deep.append(layers.Reshape((1,))(x))
        elif encoding.embedding:
            deep.append(
                layers.Embedding(encoding.categories, encoding.embedding, name=f"{name}_weights")(x)
            )
        else:
            deep.append(layers.CategoryEncoding(encoding.categories, output_mode="one_hot")(x))
    x = layers.Concatenate()(deep)
    for units in hidden_units:
        x = layers.Dense(units, activation="relu")(x)
    return keras.Model(inputs, layers.Add()([layers.Dense(classes)(x), *wide]))


def _encodings(manifest: Manifest) -> Iterator[tuple[str, Encoding]]:
    for part, entries in (("deep", manifest.deep), ("wide", manifest.wide)):
        for i, encoding in enumerate(entries):
            yield f"{part}_{i}", encoding
