"""What is predicted of a dataset of TensorFlow Datasets; of a table what a model makes of its columns, which nobody says.

A number is normalised, a class is one of the categories that it has, a text one of the thousand most frequent. Each
element of a vector is a column. For anything else, write the table as CSV files and a schema.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from tensorflow_datasets.core.features import FeatureConnector

from common.manifest import MULTI_LABEL, REGRESSION, Encoding
from components.convert.tables import expressions
from components.convert.tables.schema import Column, Input, Label, Schema
from components.convert.writing.label_feature import LABEL

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


def predicted(key: str, feature: FeatureConnector) -> dict[str, Any]:
    """The classes of a label, or its task and the keys of its targets by name; nothing if it can be no label.

    A vector of booleans says which of several labels apply; any other numbers are predicted as they are.
    """
    if type(feature).__name__ == "ClassLabel":
        return {"classes": tuple(feature.names or map(str, range(feature.num_classes)))}
    if not supported(feature):
        return {}
    kind, size = np.dtype(feature.np_dtype).kind, math.prod(feature.shape)
    if kind == "O" or (kind == "b" and size == 1):
        return {}
    keys = [f"{key}[{i}]" for i in range(size)] if feature.shape else [key]
    return {"task": MULTI_LABEL if kind == "b" else REGRESSION, "targets": dict(zip(keys, keys, strict=True))}


def infer(features: Mapping[str, FeatureConnector], label: str, predicted: Mapping[str, Any], **said: Any) -> Schema:
    """The schema of a table, all features of which are `supported`; `said` is what else it says of itself."""
    keys = list(predicted.get("targets", [label]))
    names = [LABEL] if len(keys) == 1 else [f"{LABEL}_{i}" for i in range(len(keys))]
    type_ = _TYPES[np.dtype(features[label].np_dtype).kind]
    if "classes" in predicted:
        what = Label(classes=predicted["classes"], column=LABEL)
    else:
        parsed = {key: expressions.parse(n, {n: type_}, LABEL, "number") for n, key in zip(names, keys, strict=True)}
        what = Label(task=predicted["task"], targets=parsed, given=frozenset(names))
    labels = [Column(name=n, header=k, type=type_, predicted=n in what.given) for n, k in zip(names, keys, strict=True)]
    others = {key: feature for key, feature in features.items() if key != label}
    columns = list(_columns(others, {LABEL, *names}))
    return Schema(
        columns={column.name: column for column in (*labels, *dict(columns))},
        label=what,
        deep=tuple(_input(column, classes) for column, classes in columns),
        ignore_others=True,
        **said,
    )


def _columns(features: Mapping[str, FeatureConnector], taken: set[str]) -> Iterator[tuple[Column, int | None]]:
    """A column for each value of each feature, not named as those taken; and how many classes it has if any."""
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
