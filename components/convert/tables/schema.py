"""What a schema file says of a table, or of images in records, checked. The file itself: `yaml_loader.py`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from common.manifest import CLASSIFICATION, Encoding, Feature
from components.convert.tables.expressions import Expression
from components.convert.writing.label_feature import LABEL, label_feature

DELIMITERS = (",", ";", "\t", "|")
_DTYPES = {"float": "float32", "int": "int64", "string": "string", "bool": "string", "time": "int64"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the file; a missing value is its default, and an error if that is None.

    The header is its name in a CSV file; in records it is the key of the feature, with an index if it has several
    values.
    """

    name: str
    header: str
    type: str
    default: float | int | str | None = None
    unit: str | None = None
    # The label follows from it: rows where it is missing are refused, unless the filter drops them.
    predicted: bool = False

    @property
    def required(self) -> bool:
        """Whether a missing value is an error at once."""
        return self.default is None and not self.predicted

    @property
    def dtype(self) -> str:
        """Of the stored values."""
        return _DTYPES[self.type]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Label:
    """What is to be predicted, by the task that a manifest says.

    Of classification: a condition, or the column that has it; and the names of its values. Else the targets by name,
    numbers of regression, conditions or columns of 0 and 1 of `multi_label`; those given are columns as they are.
    """

    task: str = CLASSIFICATION
    classes: tuple[str, ...] = ()
    column: str | None = None
    condition: Expression | None = None
    targets: Mapping[str, Expression] = dataclasses.field(default_factory=dict)
    given: frozenset[str] = frozenset()

    @property
    def sources(self) -> frozenset[str]:
        """The columns without whose values there is no label."""
        column = {self.column} if self.column else set()
        return frozenset(column).union(*(expression.columns - expression.tested for expression in self.expressions))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The condition or the targets."""
        return (self.condition,) if self.condition else tuple(self.targets.values())

    @property
    def feature(self) -> Feature:
        """The manifest's."""
        return label_feature(self.task, len(self.classes or self.targets))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """An encoding whose vocabulary, of at most `vocabulary_size` values, is still to be found."""

    encoding: Encoding
    vocabulary_size: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitRule:
    """What decides to which split a row goes.

    Rows with one value in the column go to one split; or, if there are starts, those of which the value is at least that
    of a split.
    """

    column: str
    starts: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSchema:
    """Where records have an image and its class, by its number or its name, or the targets of the task: keys of features.

    The image is a PNG or JPEG file or, if there is a shape, height x width x channels pixels. The numbers of the
    classes begin with the first label. Targets are by name; a key may have an index, as a column's header. The content is
    the file's, as data.
    """

    name: str
    origin: str
    image: str
    label: str | None = None
    classes: tuple[str, ...] = ()
    first_label: int = 0
    task: str = CLASSIFICATION
    targets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shape: tuple[int, int, int] | None = None
    content: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """What a schema file says of a table; its columns are by the names of their features.

    Without a filter all rows are kept; without a delimiter the name of a CSV file decides. Without a rule, the position
    of a row decides to which split it goes. The texts in `missing` stand for a missing value, and the content is the
    file's, as data.
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
    split: SplitRule | None = None

    @property
    def stored(self) -> list[Column]:
        """The columns that are features of their own: all but one that is named as the label is."""
        return [column for column in self.columns.values() if column.name != LABEL]
