"""The wide and deep model of a table as one usually writes it with Keras: a layer for each feature.

    model = ordinary_model(manifest, hidden_units=(128, 64, 32))
    model.compile(...)
    model.fit(ordinary_columns(manifest, columns), labels, batch_size=128)

The columns are normalised, looked up and hashed beforehand, so that training alone is compared:
with Keras' preprocessing layers inside the model, `fit` would do that again for every batch.
"""

import keras
import numpy as np

from trainer.data import column_encodings


def ordinary_columns(manifest, columns):
    """Returns the inputs of `ordinary_model` from columns of a split: float32 or int32 [N] each."""
    taken = {}
    for name, encoding in _encodings(manifest):
        values = columns[encoding.columns[0]].numpy()
        if encoding.kind == "numeric":
            statistics = manifest.feature(encoding.columns[0]).statistics
            scaled = (values - statistics.mean) / (statistics.std or np.inf)
            taken[name] = scaled.astype(np.float32)
        else:
            taken[name] = column_encodings.category(encoding, columns).numpy().astype(np.int32)
    return taken


def ordinary_model(manifest, *, hidden_units):
    """The network of `trainer.models.wide_deep`; logits [N, classes]."""
    layers, classes = keras.layers, len(manifest.class_names)
    inputs = {}
    deep = []
    wide = []
    for name, encoding in _encodings(manifest):
        is_numeric, weights = encoding.kind == "numeric", f"{name}_weights"
        dtype = "float32" if is_numeric else "int32"
        x = inputs[name] = keras.Input((1,) if is_numeric else (), dtype=dtype, name=name)
        if name.startswith("wide"):
            zeros = {"embeddings_initializer": "zeros", "name": weights}
            linear = layers.Dense(classes, use_bias=False, name=weights)
            table = layers.Embedding(encoding.categories or 1, classes, **zeros)
            wide.append(linear(x) if is_numeric else table(x))
        elif is_numeric:
            deep.append(x)
        elif encoding.embedding:
            deep.append(layers.Embedding(encoding.categories, encoding.embedding, name=weights)(x))
        else:
            deep.append(layers.CategoryEncoding(encoding.categories, output_mode="one_hot")(x))
    x = layers.Concatenate()(deep)
    for units in hidden_units:
        x = layers.Dense(units, activation="relu")(x)
    return keras.Model(inputs, layers.Add()([layers.Dense(classes)(x), *wide]))


def _encodings(manifest):
    for part, entries in (("deep", manifest.deep), ("wide", manifest.wide)):
        for i, encoding in enumerate(entries):
            yield f"{part}_{i}", encoding
