"""A table of TensorFlow Datasets, and what a model makes of its columns, which nobody says there.

A number is normalised, a class is one of the categories that it has, a text one of the thousand most frequent. Each
element of a vector is a column. For anything else, write the table as CSV files and a schema.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tensorflow_datasets.core.features import FeatureConnector

from components.convert.tables.schema import LABEL, Column, Input, Label, Schema
from trainer.base.manifest import Encoding

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


def infer(features: Mapping[str, FeatureConnector], label: str, classes: tuple[str, ...], **said: Any) -> Schema:
    """The schema of a table; all features but the label are `supported`, and `said` is what else it says of itself."""
    columns = list(_columns({key: feature for key, feature in features.items() if key != label}))
    return Schema(
        columns={column.name: column for column in (Column(name=LABEL, header=label, type="int"), *dict(columns))},
        label=Label(classes=classes, column=LABEL),
        deep=tuple(_input(column, classes) for column, classes in columns),
        ignore_others=True,
        **said,
    )


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
