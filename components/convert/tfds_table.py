"""A table of TensorFlow Datasets, and what a model makes of its columns, which nobody says there.

A number is normalised, a class is one of the categories that it has, a text one of the thousand most frequent. Each
element of a vector is a column. For anything else, write the table as CSV files and a schema.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from components.convert.schema import LABEL, Column, Input, Label, Schema
from components.convert.store import Store
from components.convert.table import TableSource
from components.convert.tfds_records import Record, collect
from trainer.errors import UserError
from trainer.manifest import Encoding

if TYPE_CHECKING:
    from tensorflow_datasets.core import SplitInfo
    from tensorflow_datasets.core.features import FeatureConnector

_TEXT_VOCABULARY, _TEXT_EMBEDDING = 1000, 8
_MOST_ELEMENTS = 256  # of a vector
_FEATURES = ("Tensor", "Scalar", "Text", "ClassLabel")
_TYPES = {"b": "int", "i": "int", "u": "int", "f": "float", "O": "string"}  # by the kind of NumPy's type
_STORED = {"int": np.int64, "float": np.float32, "string": bytes}


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Element:
    """A column: one value of a feature.

    Attributes:
      key: Of the feature in a record.
      index: Of the value in it.
      column: What the value is.
      classes: How many it has, if it is one of some.
    """

    key: str
    index: int
    column: Column
    classes: int | None

    def of(self, record: Record) -> Any:
        """Its value in a record."""
        feature = record.features[self.key]
        lists = {"int": feature.int64_list, "float": feature.float_list, "string": feature.bytes_list}
        return lists[self.column.type].value[self.index]

    def input(self) -> Input:
        """What a model makes of it."""
        columns = (self.column.name,)
        if self.classes:
            return Input(encoding=Encoding(kind="vocabulary", columns=columns), vocabulary_size=self.classes)
        if self.column.type == "string":
            encoding = Encoding(kind="vocabulary", columns=columns, embedding=_TEXT_EMBEDDING)
            return Input(encoding=encoding, vocabulary_size=_TEXT_VOCABULARY)
        return Input(encoding=Encoding(kind="numeric", columns=columns))


def read(
    *,
    name: str,
    origin: str,
    version: str,
    splits: Mapping[str, SplitInfo],
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
      splits: By name.
      features: All of them, by their keys in a record; but for the label each is `supported`.
      label: Key of the label.
      class_names: In the order of the label's values.
      store: Where columns are kept.

    Raises:
      UserError: If a file is damaged.
    """
    elements = list(_elements({key: feature for key, feature in features.items() if key != label}))

    def extract(record: Record) -> list[Any]:
        return [record.class_of(label, len(class_names)), *(element.of(record) for element in elements)]

    dtypes = [np.int64, *(_STORED[element.column.type] for element in elements)]
    names = [LABEL, *(element.column.name for element in elements)]
    columns = {
        split: dict(zip(names, collect(split, part, extract, dtypes, store), strict=True))
        for split, part in splits.items()
    }
    for column in (element.column for element in elements if element.column.type == "float"):
        for split, values in columns.items():
            if not (finite := np.isfinite(values[column.name])).all():
                raise UserError(
                    f"dataset {name!r}: {column.name} of example {int(finite.argmin())} in {split} is "
                    f"{values[column.name][finite.argmin()]}, no number; write the table as CSV, with a default for it"
                )
    schema = Schema(
        name=name,
        origin=origin,
        columns={element.column.name: element.column for element in elements},
        label=Label(classes=class_names),
        filter=None,
        deep=tuple(element.input() for element in elements),
        wide=(),
        missing=(),
        ignore_others=False,
        content={"tfds": version},
    )
    return TableSource(schema=schema, splits=columns, missing={}, working_bytes=store.working_bytes)


def _elements(features: Mapping[str, FeatureConnector]) -> Iterator[_Element]:
    taken = {LABEL}
    for key, feature in sorted(features.items()):
        type_ = _TYPES[np.dtype(feature.np_dtype).kind]
        base = re.sub(r"\W", "_", key) if key[0].isalpha() else f"c_{key}"
        for index in range(math.prod(feature.shape)):
            name = f"{base}_{index}" if feature.shape else base
            while name in taken:
                name += "_"
            taken.add(name)
            column = Column(name=name, header=key, type=type_)
            classes = feature.num_classes if type(feature).__name__ == "ClassLabel" else None
            yield _Element(key=key, index=index, column=column, classes=classes)
