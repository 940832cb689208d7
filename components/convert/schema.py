"""Schema files of tables; docs/SCHEMAS.md describes their keys.

    schema = TableSchema.load("taxi.yaml")
    schema.columns["fare"].dtype         # "float32"
    schema.label.condition               # "tips > 0.2 * fare"

The fields of the classes are the keys of the file, so a schema can be made without a file too:
`Label(column="tip", classes=("no", "yes"))`, `Input(column="fare", numeric="z_score")`. An error
names the file, the line and the place in it: `taxi.yaml: line 7: deep[0]: unknown column 'fair';
did you mean 'fare'?`
"""

import datetime
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from common.documents import line_of, parse_yaml
from common.errors import UserError, about, readable, unknown
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Encoding
from common.validation import Model, Name, number, show
from components.convert.expressions import columns_of, quoted, references
from components.convert.source import LABEL

_DTYPES = {
    "float": "float32",
    "int": "int64",
    "string": "string",
    "bool": "string",
    "time": "int64",
}
DELIMITERS = (",", ";", "\t", "|")
FLOAT32_MAX = float.fromhex("0x1.fffffep+127")
_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")
_NUMBERS, _CATEGORIES = ("float", "int", "time"), ("int", "string", "bool")
# Types of columns that each kind of input takes. A string has no order, and the text of a float
# hardly ever occurs twice.
_TAKES = {
    "numeric": _NUMBERS,
    "buckets": _NUMBERS,
    "vocabulary": _CATEGORIES,
    "hash_buckets": _CATEGORIES,
    "words": ("string",),
}


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < max(2, len(names)):
        raise UserError(f"{[*names]} are not at least two different names")
    return names


def _ascending(numbers: tuple[float, ...]) -> tuple[float, ...]:
    if not numbers or [*numbers] != sorted({*numbers}):
        raise UserError(f"{[*numbers]} are not ascending numbers")
    return numbers


def _by_name(value: Any) -> Any:
    """Turns a name, or a list of names, into a mapping from each name to itself.

    Returns any other value unchanged. Raises a `UserError` if two names are equal.
    """
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        return value
    named = {str(name): name for name in names}
    if len(named) < len(names):
        raise UserError(f"{names} are not different columns")
    return named


def _default(value: Any, column: ValidationInfo) -> Any:
    """Returns a default as it is stored; a `UserError` if it is not of the column's type."""
    kind = column.data.get("type", "")
    allowed = {"float": (int, float), "string": (str,), "bool": (bool,)}.get(kind, (int,))
    most = FLOAT32_MAX if kind == "float" else 2**63 - 1
    if type(value) not in allowed or not (kind == "string" or abs(value) <= most):
        hint = "; write how many seconds it is since 1970 in UTC" if kind == "time" else ""
        raise UserError(f"{show(value)} is no {kind}{hint}")
    if kind == "float":
        return float(value)
    return str(value).lower() if kind == "bool" else value


def _start(value: Any) -> int | datetime.datetime:
    if type(value) is int:
        return value
    try:
        start = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        raise UserError(
            f"{show(value)} is no whole number, and no date or time as in ISO 8601"
        ) from None
    # A time without a zone is in UTC.
    return start if start.tzinfo else start.replace(tzinfo=datetime.UTC)


def _only(model: Model, names: Iterable[str]) -> str:
    """Returns the name of the only field that has a value, or raises a `UserError`."""
    filled = [name for name in names if getattr(model, name) is not None]
    if len(filled) != 1:
        raise UserError(f"needs exactly one of {', '.join(names)}")
    return filled[0]


_Positive = Annotated[int, number(1, 999_999_999)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Start = Annotated[Any, AfterValidator(_start)]
_Names = Annotated[tuple[Name, ...], AfterValidator(_different)]
_Named = Annotated[dict[Name, Name], BeforeValidator(_by_name), Field(min_length=1)]


class Column(Model):
    """Column of a table, which the source has under the header.

    A missing value is replaced by the default, and is an error if that is None. With an indicator,
    a model also gets a feature that says whether the value was missing. The unit is in words.
    """

    name: str
    header: Name
    type: Literal["float", "int", "string", "bool", "time"]
    default: Annotated[Any, AfterValidator(_default)] = None
    indicator: Annotated[bool, Field(strict=True)] = False
    unit: Name | None = Field(
        default_factory=lambda column: (
            "seconds since 1970-01-01 UTC" if column.get("type") == "time" else None
        )
    )

    @property
    def dtype(self) -> str:
        """Type of the stored values: `float32`, `int64` or `string`."""
        return _DTYPES[self.type]


class Label(Model):
    """Prediction target: a class, numbers by name, or labels by name that may all apply.

    The classes of a condition are where it is false, then where it is true.
    """

    column: Name | None = None
    condition: Name | None = None
    classes: _Names = ()
    regression: _Named | None = None
    multi_label: _Named | None = None

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if bool(self.classes) != (self.task == CLASSIFICATION):
            raise UserError("needs classes for a column or a condition, and for nothing else")
        if self.condition and len(self.classes) != 2:
            raise UserError("a condition has two classes: where it is false, where it is true")
        if self.multi_label and len(self.multi_label) == 1:
            raise UserError(
                "one label is two classes; write column or condition, with classes, for multi_label"
            )
        return self

    @property
    def kind(self) -> str:
        """Key of the target: `column`, `condition`, `regression` or `multi_label`."""
        return _only(self, ("column", "condition", REGRESSION, MULTI_LABEL))

    @property
    def task(self) -> str:
        """Task in the manifest: `classification`, `regression` or `multi_label`."""
        return self.kind if self.kind in (REGRESSION, MULTI_LABEL) else CLASSIFICATION

    @property
    def targets(self) -> dict[str, str]:
        """SQL of each number, or of each label (a condition, or a column of 0 and 1), by name.

        It is empty for a classification.
        """
        return {
            name: quoted(sql) if _NAME.fullmatch(sql) else sql
            for name, sql in (self.regression or self.multi_label or {}).items()
        }

    @property
    def sources(self) -> dict[str, str]:
        """SQL of what is predicted, by its place in the schema, such as `label.column`."""
        if self.targets:
            return {f"label.{self.kind}.{name}": sql for name, sql in self.targets.items()}
        return {f"label.{self.kind}": self.condition or quoted(self.column or "")}

    @property
    def columns(self) -> frozenset[str]:
        """Names of all columns from which the label is computed."""
        return frozenset().union(*map(references, self.sources.values()))


class Input(Model):
    """Input of a model: a column, or a cross of several columns, with one kind of encoding."""

    column: Name | None = None
    columns: _Names = ()
    numeric: Literal["z_score"] | None = None
    buckets: Annotated[tuple[_Number, ...], AfterValidator(_ascending)] | None = None
    vocabulary: _Positive | None = None
    hash_buckets: _Positive | None = None
    words: _Positive | None = None
    embedding: _Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        kind = self.kind
        if bool(self.column) == bool(self.columns):
            raise UserError("needs either column, or the columns of a cross")
        if self.columns and kind != "hash_buckets":
            raise UserError(f"a cross of columns has hash_buckets, not {kind}")
        if self.embedding and kind in ("numeric", "words"):
            raise UserError(f"embedding is for categories; leave it out with {kind}")
        return self

    @property
    def kind(self) -> str:
        """Key of the encoding, such as `hash_buckets`; a `UserError` if not exactly one is set."""
        return _only(self, _TAKES)

    @property
    def encoding(self) -> Encoding:
        """Encoding in the manifest, without the vocabulary, which has yet to be counted."""
        return Encoding(
            kind="cross" if self.columns else self.kind.removesuffix("_buckets"),
            columns=self.columns or (self.column or "",),
            boundaries=self.buckets,
            hash_buckets=self.hash_buckets,
            embedding=self.embedding,
        )

    @property
    def vocabulary_size(self) -> int | None:
        """Largest number of values or words in the vocabulary; None without one."""
        return self.vocabulary or self.words


class SplitRule(Model):
    """Rule that assigns the rows of a table to splits.

    Rows with equal values of `group` are drawn for the same split. Or rows with a `time` of at
    least `test_from` are for test, and of the others those of at least `validation_from` for
    validation; without `validation_from`, these are drawn.
    """

    group: Name | None = None
    time: Name | None = None
    test_from: _Start = None
    validation_from: _Start = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model_fields_set - {"validation_from"} != {
            "time",
            "test_from",
        } and self.model_fields_set != {"group"}:
            raise UserError(
                "needs either group, with a column, or time, with a column, and test_from"
            )
        if self.starts.get("validation", -math.inf) >= self.starts.get("test", math.inf):
            raise UserError(
                "validation_from is not before test_from, so that there would be no validation rows"
            )
        return self

    @property
    def column(self) -> str:
        """Name of the column that decides."""
        return self.group or self.time or ""

    @property
    def starts(self) -> dict[str, int]:
        """Smallest `time` of `test` and `validation`, where set; times in seconds since 1970."""
        starts = {"test": self.test_from, "validation": self.validation_from}
        return {
            split: start if type(start) is int else math.floor(start.timestamp())
            for split, start in starts.items()
            if start is not None
        }


class TableSchema(Model):
    """Schema of a table: its columns, what is predicted, and what a model takes.

    Columns are by the names of their features. `filter` is SQL of the condition for keeping a row,
    and `missing` has the texts that stand for a missing value. Without a `delimiter`, the name of a
    CSV file decides; without `split`, rows are drawn for splits by their content hashes. `content`
    is the file as JSON, which the manifest keeps.
    """

    name: Name
    origin: Name
    columns: Annotated[dict[str, Column], Field(min_length=1)]
    label: Label
    filter: Name | None = None
    deep: tuple[Input, ...] = ()
    wide: tuple[Input, ...] = ()
    missing: tuple[Annotated[str, Field(strict=True)], ...] = ("",)
    other_columns: Literal["refuse", "ignore"] = "refuse"
    delimiter: Literal[DELIMITERS] | None = None  # type: ignore[valid-type]
    split: SplitRule | None = None
    content: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a schema file.

        Raises:
          UserError: If the file cannot be read, or something is wrong with its content.
        """
        with readable(path), open(path, "rb") as file:
            text = file.read()
        with about(path):
            data = parse_yaml(text)
            try:
                schema = cls.read(data)
            except UserError as error:
                line = line_of(text, str(error).partition(": ")[0])
                raise UserError(f"line {line}: {error}" if line else str(error)) from None
            # `default=str` makes texts of the dates that YAML knows.
            return schema.model_copy(update={"content": json.loads(json.dumps(data, default=str))})

    @field_validator("columns", mode="before")
    @classmethod
    def _name_columns(cls, columns: Any) -> Any:
        if not isinstance(columns, Mapping):
            return columns
        return {
            name: {"name": name, "header": name, **column}
            if isinstance(column, Mapping)
            else column
            for name, column in columns.items()
        }

    @property
    def stored(self) -> list[Column]:
        """Columns that are features of their own: all but one that is named `label`."""
        return [column for column in self.columns.values() if column.name != LABEL]

    @property
    def indicators(self) -> dict[str, str]:
        """Columns with an indicator, by the feature that is 1 for a missing value, else 0."""
        return {f"{column.name}_missing": column.name for column in self.stored if column.indicator}

    @model_validator(mode="after")
    def _check(self) -> Self:
        seen = set()
        for indicator, name in self.indicators.items():
            if self.columns[name].default is None or indicator in self.columns:
                raise UserError(
                    f"columns.{name}.indicator: needs a default, and that no column is named "
                    f"{indicator}"
                )
        for name, column in self.columns.items():
            if column.name != name or not _NAME.fullmatch(name):
                raise UserError(
                    f"columns.{name}: a name is a letter, then letters, digits and _; give the "
                    "source's own name as header"
                )
            for key in (("header", column.header), ("name, but for capitals,", name.lower())):
                if key in seen:
                    raise UserError(f"columns.{name}: another column has this {key[0]} too")
                seen.add(key)
        inputs = set()
        for part in ("deep", "wide"):
            for i, entry in enumerate(getattr(self, part)):
                if entry.embedding and part == "wide":
                    raise UserError(
                        f"wide[{i}]: embedding is for deep; the linear part has one weight for "
                        "each category"
                    )
                for name in entry.encoding.columns:
                    self._require(
                        name, f"{part}[{i}]", _TAKES[entry.kind] if entry.column else _DTYPES
                    )
                    inputs.add(name)
        if not inputs:
            raise UserError("neither deep nor wide says what a model takes")
        types = {name: column.type for name, column in self.columns.items()}
        self._check_label(inputs, types)
        if self.filter:
            columns_of(self.filter, types, "filter")
        if self.split:
            rule = self.split
            self._require(
                rule.column, "split", ("int", "time") if rule.time else (*_CATEGORIES, "time")
            )
            for start in (rule.test_from, rule.validation_from):
                if start is not None and (type(start) is int) != (types[rule.column] == "int"):
                    raise UserError(
                        f"split: {start} is no value of {rule.column}, which is of type "
                        f"{types[rule.column]}"
                    )
        return self

    def _check_label(self, inputs: set[str], types: Mapping[str, str]) -> None:
        """Raises a `UserError` if the label cannot be computed, or follows from the inputs."""
        label, sources = self.label, self.label.sources
        if LABEL in self.columns and [*sources.values()] != [quoted(LABEL)]:
            raise UserError(
                f"columns.{LABEL}: what is predicted has that name; give the column another one, "
                "and a header"
            )
        for place, sql in sources.items():
            plain = self.columns.get(sql.strip('"'))
            if label.column:
                self._require(label.column, place, _CATEGORIES)
            else:
                is_number = label.task == REGRESSION or (
                    label.task == MULTI_LABEL and plain and plain.type == "int"
                )
                columns_of(sql, types, place, "number" if is_number else "condition")
            if plain and plain.default is not None and label.targets:
                raise UserError(
                    f"{place}: nothing can stand in for what is predicted; take the column's "
                    "default out"
                )
            if (names := references(sql)) <= inputs:
                raise UserError(
                    f"{place}: follows from the inputs {', '.join(sorted(names))}; take one of "
                    "them out of deep and wide"
                )

    def _require(self, name: str, place: str, types: Collection[str]) -> None:
        """Raises a `UserError` unless there is a column of this name and of one of the types."""
        if name not in self.columns:
            raise UserError(f"{place}: {unknown('column', name, self.columns)}")
        if (type_ := self.columns[name].type) not in types:
            raise UserError(
                f"{place}: {name} is a {type_}; needed is a column of type {' or '.join(types)}"
            )
