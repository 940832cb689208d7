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
    """A column of the file.

    Attributes:
      name: Of the feature.
      header: Of the column in a CSV file; in records, the key of the feature, with an index if it has several values.
      type: `float`, `int` or `string`.
      default: What stands in for a missing value; None if none may be missing.
      unit: In words.
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
    """Where records have an image and its class.

    Attributes:
      name: Of the dataset.
      origin: Where it comes from, in words.
      image: Key of the feature that is an image: a PNG or JPEG file, or its pixels.
      label: Key of the feature that has the class, by its number or its name.
      classes: Names, in the order of the numbers.
      first_label: Number of the first class.
      shape: Height, width and channels of pixels; None of files.
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
    """All that a schema file says.

    Attributes:
      name: Of the dataset.
      origin: Where it comes from, in words.
      columns: By the names of their features.
      label: What is to be predicted.
      filter: Which rows are kept; None for all.
      deep: What the deep part of a model takes.
      wide: What its linear part takes.
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
