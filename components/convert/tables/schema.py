"""What a schema file says of a table, or of images in records, checked. The file itself: `yaml_loader.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from components.convert.tables.expressions import Expression
from trainer.base.manifest import Encoding

LABEL = "label"
DELIMITERS = (",", ";", "\t", "|")
_DTYPES = {"float": "float32", "int": "int64", "string": "string"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the file; a missing value is its default, and an error if that is None.

    The header is its name in a CSV file; in records it is the key of the feature, with an index if it has several values.
    """

    name: str
    header: str
    type: str
    default: float | int | str | None = None
    unit: str | None = None

    @property
    def dtype(self) -> str:
        """Of the stored values."""
        return _DTYPES[self.type]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """What is to be predicted: a condition, or the column that has it; and the names of its values."""

    classes: tuple[str, ...]
    column: str | None = None
    condition: Expression | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """An encoding whose vocabulary, of at most `vocabulary_size` values, is still to be found."""

    encoding: Encoding
    vocabulary_size: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSchema:
    """Where records have an image and its class, by its number or its name.

    Attributes:
      image: Key of the feature that is a PNG or JPEG file or, if there is a shape, height x width x channels pixels.
      label: Key of the feature that has the class.
      classes: Names, in the order of the numbers.
      first_label: Number of the first class.
      content: The file's content as data.
    """

    name: str
    origin: str
    image: str
    label: str
    classes: tuple[str, ...]
    first_label: int = 0
    shape: tuple[int, int, int] | None = None
    content: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """What a schema file says of a table.

    Attributes:
      columns: By the names of their features.
      filter: Which rows are kept; None for all.
      missing: Texts that stand for a missing value.
      ignore_others: Whether the file may have more columns.
      content: The file's content as data.
      delimiter: Between the values of a CSV file; None if its name decides.
    """

    name: str
    origin: str
    columns: Mapping[str, Column]
    label: Label
    filter: Expression | None = None
    deep: tuple[Input, ...] = ()
    wide: tuple[Input, ...] = ()
    missing: tuple[str, ...] = ()
    ignore_others: bool
    content: Mapping[str, Any]
    delimiter: str | None = None

    @property
    def stored(self) -> list[Column]:
        """The columns that are features of their own: all but one that is named as the label is."""
        return [column for column in self.columns.values() if column.name != LABEL]
