"""A table of TensorFlow Datasets, and what a model makes of its columns, which nobody says there.

A number is normalised, a class is one of the categories that it has, a text one of the thousand most frequent. Each
element of a vector is a column. For anything else, write the table as CSV files and a schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from components.convert.sources.examples import example_columns
from components.convert.sources.examples.parser import records
from components.convert.tables import rows
from components.convert.tables.rows import TableSource
from components.convert.tables.schema import LABEL, Column, Input, Label, Schema
from components.convert.writing.column_store import Store
from trainer.base.manifest import Encoding

if TYPE_CHECKING:
    from tensorflow_datasets.core.features import FeatureConnector

_TEXT_VOCABULARY, _TEXT_EMBEDDING = 1000, 8
_MOST_ELEMENTS = 256  # of a vector
_FEATURES = ("Tensor", "Scalar", "Text", "ClassLabel")
_TYPES = {"b": "int", "i": "int", "u": "int", "f": "float", "O": "string"}  # by the kind of NumPy's type


def supported(feature: FeatureConnector) -> bool:
    """Whether it is a number, a text, or a short vector of one length."""
    kind, shape, stored = np.dtype(feature.np_dtype).kind, feature.shape, feature.get_serialized_info()
    return (
        type(feature).__name__ in _FEATURES
        and kind in _TYPES
        and np.dtype(feature.np_dtype) != np.uint64
        and (stored.shape, stored.np_dtype) == (shape, feature.np_dtype)  # not compressed
        and len(shape) <= 1
        and all(size is not None and 1 <= size <= _MOST_ELEMENTS for size in shape)
    )


def read(
    *,
    name: str,
    origin: str,
    version: str,
    splits: Mapping[str, Sequence[str]],
    features: Mapping[str, FeatureConnector],
    label: str,
    class_names: tuple[str, ...],
    store: Store,
) -> TableSource:
    """Reads the table.

    Args:
      name: Of the dataset.
      origin: Where it comes from, in words.
      version: Of the dataset.
      splits: Paths of the files, by name.
      features: All of them, by their keys in a record; but for the label each is `supported`.
      label: Key of the label.
      class_names: In the order of the label's values.
      store: Where columns are kept.

    Raises:
      UserError: If a file is damaged.
    """
    columns = list(_columns({key: feature for key, feature in features.items() if key != label}))
    schema = Schema(
        name=name,
        origin=origin,
        columns={column.name: column for column in (Column(name=LABEL, header=label, type="int"), *dict(columns))},
        label=Label(classes=class_names, column=LABEL),
        filter=None,
        deep=tuple(_input(column, classes) for column, classes in columns),
        wide=(),
        missing=(),
        ignore_others=True,
        content={"tfds": version},
    )
    blocks = {split: example_columns.blocks(records(split, paths), schema) for split, paths in splits.items()}
    return rows.read(blocks, schema, store)


def _columns(features: Mapping[str, FeatureConnector]) -> Iterator[tuple[Column, int | None]]:
    """A column for each value of each feature, and how many classes it has if it is one of some."""
    taken = {LABEL}
    for key, feature in sorted(features.items()):
        type_ = _TYPES[np.dtype(feature.np_dtype).kind]
        base = re.sub(r"\W", "_", key) if key[0].isalpha() else f"c_{key}"
        for index in range(math.prod(feature.shape)):
            name = f"{base}_{index}" if feature.shape else base
            while name in taken:
                name += "_"
            taken.add(name)
            header = f"{key}[{index}]" if feature.shape else key
            yield Column(name=name, header=header, type=type_), getattr(feature, "num_classes", None)


def _input(column: Column, classes: int | None) -> Input:
    """What a model makes of a column."""
    columns = (column.name,)
    if classes:
        return Input(encoding=Encoding(kind="vocabulary", columns=columns), vocabulary_size=classes)
    if column.type == "string":
        encoding = Encoding(kind="vocabulary", columns=columns, embedding=_TEXT_EMBEDDING)
        return Input(encoding=encoding, vocabulary_size=_TEXT_VOCABULARY)
    return Input(encoding=Encoding(kind="numeric", columns=columns))
