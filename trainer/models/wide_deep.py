"""Wide and deep learning (Cheng et al. 2016, arXiv:1606.07792) on a table.

The wide part is linear in its categories and numbers. The deep part is a network over numbers,
embeddings and categories. Their logits are added.
"""

import keras

from common.manifest import Manifest
from trainer.data import column_encodings
from trainer.nn.layers import Embedding, in_units

OPTIMIZER = "adam"
LEARNING_RATE = 1e-3

prepare = column_encodings.prepare


def build(
    manifest: Manifest, *, hidden_units: tuple[int, ...] = (128, 64, 32), dropout: float = 0.0
) -> keras.Model:
    """Returns a model from prepared columns (`prepare`) to outputs, float32 [N, outputs].

    Args:
      manifest: Manifest of the dataset, whose `wide` and `deep` list the inputs of the two parts.
      hidden_units: Units of the hidden layers of the deep part, at least one.
      dropout: Share of values that training drops behind each hidden layer.

    Raises:
      UserError: If a dataset for regression has no training examples.
    """
    columns: dict[str, keras.KerasTensor] = {}
    classes, logits = manifest.outputs, []
    if manifest.wide:
        logits.append(_affine("wide", manifest, classes, columns, dtype="float32"))
    if manifest.deep:
        first, *others = hidden_units
        x = keras.layers.Dropout(dropout)(
            keras.layers.ReLU()(_affine("deep", manifest, first, columns))
        )
        for units in others:
            x = keras.layers.Dropout(dropout)(keras.layers.Dense(units, activation="relu")(x))
        logits.append(keras.layers.Dense(classes, dtype="float32")(x))
    return keras.Model(columns, in_units(manifest, _sum(logits, "float32")), name="wide_deep")


def _affine(
    part: str,
    manifest: Manifest,
    units: int,
    columns: dict[str, keras.KerasTensor],
    dtype: str | None = None,
) -> keras.KerasTensor:
    """Returns the output [N, units] of one affine layer over all inputs of a part.

    The inputs are numbers, embeddings and one-hot categories. A one-hot category times a matrix is
    a row of the matrix, so that row is gathered.

    Args:
      part: `wide` or `deep`.
      manifest: Manifest of the dataset.
      units: Number of outputs of the layer.
      columns: Mapping to which the part's `keras.Input`s are added, by name.
      dtype: Type of the layer; None for Keras' default.
    """
    dense, terms = [], []
    for name, encodings in column_encodings.inputs(part, manifest).items():
        rows = sum(encoding.categories or 0 for encoding in encodings)
        x = columns[name] = keras.Input(
            (len(encodings),), dtype="int64" if rows else "float32", name=name
        )
        if not rows:
            dense.append(x)
        elif size := encodings[0].embedding:
            scale = keras.initializers.TruncatedNormal(stddev=size**-0.5)
            table = Embedding(rows, size, initializer=scale, name=f"{name}_table")
            dense.append(keras.layers.Flatten()(table(x)))
        else:
            weights = (
                keras.initializers.Zeros() if part == "wide" else keras.initializers.GlorotUniform()
            )
            table = Embedding(rows, units, initializer=weights, dtype=dtype, name=f"{name}_table")
            terms.append(keras.ops.sum(table(x), axis=1))
    if dense:
        x = keras.layers.Concatenate()(dense) if len(dense) > 1 else dense[0]
        # The rows that are added have a bias already. Besides, TensorFlow 2.21 fails to fuse
        # product, bias, another sum and ReLU in a SavedModel.
        terms.append(
            keras.layers.Dense(units, use_bias=not terms, dtype=dtype, name=f"{part}_dense")(x)
        )
    return _sum(terms, dtype)


def _sum(terms: list[keras.KerasTensor], dtype: str | None) -> keras.KerasTensor:
    return keras.layers.Add(dtype=dtype)(terms) if len(terms) > 1 else terms[0]
