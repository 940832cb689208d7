"""The schema file of a table, or of images in records, checked; docs/DATASETS.md says what it may hold.

    schema = load(pathlib.Path("taxi.yaml"))

A fault is told with its place in the file: `deep[0].column: unknown column 'fair'; did you mean 'fare'?`.
"""

import dataclasses
import datetime
import itertools
import math
import pathlib
import re
import reprlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from common.documents import parse_yaml
from common.errors import UserError, about, readable, unknown
from common.manifest import MULTI_LABEL, REGRESSION, Encoding
from components.convert.tables import expressions, times
from components.convert.tables.schema import DELIMITERS, Column, ImageSchema, Input, Label, Schema, SplitRule
from components.convert.writing.label_feature import LABEL

_OF_IMAGES = frozenset({"image", "classes", "label_offset", "shape"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_INT64, _FLOAT32_MAX = np.iinfo(np.int64), float(np.finfo(np.float32).max)
_STARTS = {"test_from": "test", "validation_from": "validation"}
_UNITS = {"time": "seconds since 1970-01-01 UTC"}
# Which columns make sense where: a string has no order, and the text of a float is hardly ever seen twice.
_TAKES = {
    "numeric": ("float", "int", "time"),
    "buckets": ("float", "int", "time"),
    "vocabulary": ("int", "string", "bool"),
    "hash_buckets": ("int", "string", "bool"),
    "words": ("string",),
}


def load(path: pathlib.Path) -> Schema | ImageSchema:
    """Reads a schema file; an error names the file and the place in it."""
    with readable(path):
        content = path.read_bytes()
    with about(path):
        data = parse_yaml(content)
        of_images = isinstance(data, Mapping) and "columns" not in data and _OF_IMAGES & set(data)
        return _image_schema(data) if of_images else _schema(data)


def of_table(schema: str | pathlib.Path | Schema | None, dataset: str, *, delimited: bool) -> Schema:
    """The schema of a dataset that is a table, or that of its file."""
    if schema is None:
        raise UserError(f"dataset {dataset!r} needs --schema FILE, which says what the columns are")
    found = schema if isinstance(schema, Schema) else load(pathlib.Path(schema))
    if not isinstance(found, Schema):
        raise UserError(f"{schema}: is of images in TFRecord files; dataset {dataset!r} needs one with columns")
    if found.delimiter and not delimited:
        raise UserError(f"{schema}: has a delimiter, and dataset {dataset!r} has none; leave it out")
    return found


def _schema(data: Any) -> Schema:
    optional = {"filter", "deep", "wide", "missing", "other_columns", "delimiter", "split"}
    data = _mapping(data, "top level", required={"name", "origin", "columns", LABEL}, optional=optional)
    if isinstance(rule := data.get("split"), Mapping):  # YAML makes something else of 2024-01-31
        dates = {key: value.isoformat() for key, value in rule.items() if isinstance(value, datetime.date)}
        data = {**data, "split": {**rule, **dates}}
    if not isinstance(data["columns"], Mapping) or not data["columns"]:
        raise UserError(
            f"columns: {reprlib.repr(data['columns'])} is no mapping; write for example 'fare: {{type: float}}'"
        )
    columns = {name: _column(name, value) for name, value in data["columns"].items()}
    headers = [column.header for column in columns.values()]
    if twice := {header for header in headers if headers.count(header) > 1}:
        raise UserError(f"columns: {min(twice)!r} is the header of more than one")
    types = {name: column.type for name, column in columns.items()}
    label = _label(data[LABEL], columns, types)
    columns = {name: dataclasses.replace(c, predicted=name in label.sources) for name, c in columns.items()}
    if LABEL in columns and label.column != LABEL and (label.feature.shape or LABEL not in label.given):
        raise UserError(f"columns.{LABEL}: what is predicted has that name; give the column another one, and a header")
    deep, wide = (
        tuple(_input(value, columns, f"{part}[{i}]") for i, value in enumerate(_list(data.get(part, []), part)))
        for part in ("deep", "wide")
    )
    if any(entry.encoding.embedding for entry in wide):
        raise UserError("wide: embedding is for deep; the linear part has one weight for each category")
    _refuse_leak(label, {name for entry in deep + wide for name in entry.encoding.columns})
    missing = _list(data.get("missing", [""]), "missing")
    return Schema(
        name=_text(data["name"], "name"),
        origin=_text(data["origin"], "origin"),
        columns=columns,
        label=label,
        filter=expressions.parse(data["filter"], types, "filter") if "filter" in data else None,
        deep=deep,
        wide=wide,
        missing=tuple(_text(text, f"missing[{i}]", empty=True) for i, text in enumerate(missing)),
        ignore_others=_one_of(("refuse", "ignore"), data.get("other_columns", "refuse"), "other_columns") == "ignore",
        content=data,
        delimiter=_one_of(DELIMITERS, data["delimiter"], "delimiter") if "delimiter" in data else None,
        split=_split_rule(data["split"], columns) if "split" in data else None,
    )


def _image_schema(data: Mapping[str, Any]) -> ImageSchema:
    task, required = _task(data.get(LABEL)), {"name", "origin", "image", LABEL}
    if task:
        data = _mapping(data, "top level", required=required, optional={"shape"})
        keys = {name: _text(key, f"{LABEL}.{task}.{name}") for name, key in _named(task, data[LABEL]).items()}
        predicted = {"task": task, "targets": keys}
    else:
        data = _mapping(data, "top level", required={*required, "classes"}, optional={"label_offset", "shape"})
        classes, first = data["classes"], data.get("label_offset", 0)
        if isinstance(first, bool) or not isinstance(first, int):
            raise UserError(f"label_offset: {first!r} is no whole number")
        if not isinstance(classes, list):
            classes = [str(first + i) for i in range(_positive(classes, "classes"))]
        predicted = {"label": _text(data[LABEL], LABEL), "classes": _classes(classes, "classes"), "first_label": first}
    if (shape := data.get("shape")) is not None:
        shape = tuple(_positive(size, f"shape[{i}]") for i, size in enumerate(_list(shape, "shape")))
        if len(shape) != 3 or shape[-1] not in (1, 3):
            raise UserError(f"shape: {list(shape)!r} is not [height, width, channels], with 1 or 3 channels")
    return ImageSchema(
        name=_text(data["name"], "name"),
        origin=_text(data["origin"], "origin"),
        image=_text(data["image"], "image"),
        shape=shape,
        content=data,
        **predicted,
    )


def _column(name: Any, value: Any) -> Column:
    place = f"columns.{name}"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UserError(
            f"{place}: a name is a letter, then letters, digits and _; give the file's own name as header, in quotes"
        )
    value = _mapping(value, place, required={"type"}, optional={"header", "default", "unit"})
    kind = _one_of(("float", "int", "string", "bool", "time"), value["type"], f"{place}.type")
    default = value.get("default")
    if "default" in value:
        number = isinstance(default, int | float) and not isinstance(default, bool)
        fits = {
            "float": number and abs(default) <= _FLOAT32_MAX,
            "int": number and isinstance(default, int) and _INT64.min <= default <= _INT64.max,
            "string": isinstance(default, str),
            "bool": isinstance(default, bool),
        }
        if not fits["int" if kind == "time" else kind]:
            told = "time; write how many seconds it is since 1970 in UTC" if kind == "time" else kind
            raise UserError(f"{place}.default: {default!r} is no {told}")
        spelled = {"float": float, "bool": lambda value: str(value).lower()}
        default = spelled.get(kind, lambda value: value)(default)
    return Column(
        name=name,
        header=_text(value.get("header", name), f"{place}.header"),
        type=kind,
        default=default,
        unit=_text(value["unit"], f"{place}.unit") if "unit" in value else _UNITS.get(kind),
    )


def _label(value: Any, columns: Mapping[str, Column], types: Mapping[str, str]) -> Label:
    if task := _task(value):
        return _targets(task, value, columns, types)
    optional = {"column", "condition", REGRESSION, MULTI_LABEL}
    value = _mapping(value, LABEL, required={"classes"}, optional=optional)
    classes = _classes(value["classes"], f"{LABEL}.classes")
    if ("column" in value) == ("condition" in value):
        raise UserError(f"{LABEL}: needs either column or condition")
    if "condition" in value:
        if len(classes) != 2:
            raise UserError(f"{LABEL}.classes: a condition has two: where it is false, where it is true")
        place = f"{LABEL}.condition"
        return Label(classes=classes, condition=expressions.parse(value["condition"], types, place))
    column = _known(value["column"], columns, f"{LABEL}.column")
    if column.type == "float":
        raise UserError(f"{LABEL}.column: {column.name} is a float; a label is a string or an int")
    return Label(classes=classes, column=column.name)


def _task(label: Any) -> str | None:
    """The task that a label names; None of classification."""
    tasks = (REGRESSION, MULTI_LABEL)
    return next((task for task in tasks if task in label), None) if isinstance(label, Mapping) else None


def _named(task: str, label: Any) -> Mapping[str, Any]:
    """What is predicted by name, written as a column, a list of columns, or a mapping of names to what they are."""
    place, value = f"{LABEL}.{task}", _mapping(label, LABEL, required={task})[task]
    names = [value] if isinstance(value, str) else value
    named = {_text(name, place): name for name in names} if isinstance(names, list) else value
    if not isinstance(named, Mapping) or not named:
        raise UserError(f"{place}: {value!r} is no column, no list of them and no mapping of names to what they are")
    if len(named) < len(names):
        raise UserError(f"{place}: {names!r} are not different columns")
    if task == MULTI_LABEL and len(named) == 1:
        raise UserError(f"{place}: is one label, and so two classes; give classes")
    for name in named:
        _text(name, place)
    return named


def _targets(task: str, value: Any, columns: Mapping[str, Column], types: Mapping[str, str]) -> Label:
    """The targets of a table."""
    targets, given = {}, set()
    for name, node in _named(task, value).items():
        where = f"{LABEL}.{task}.{name}"
        column = _known(node, columns, where) if isinstance(node, str) else None
        plain = column is not None and column.type != "bool"
        wanted = "number" if task == REGRESSION or plain else "condition"
        targets[name] = expressions.parse(node, types, where, wanted)
        if column is None:
            continue
        if task == MULTI_LABEL and column.type not in ("int", "bool"):
            raise UserError(f"{where}: {node} is a {column.type}; needed is a bool, an int of 0 and 1, or a condition")
        if column.default is not None:
            raise UserError(f"{where}: nothing can stand in for what is predicted; take the default of {node} out")
        given.add(node)
    return Label(task=task, targets=targets, given=frozenset(given))


def _classes(value: Any, place: str) -> tuple[str, ...]:
    classes = tuple(_text(name, f"{place}[{i}]") for i, name in enumerate(_list(value, place)))
    if len(set(classes)) < len(classes) or len(classes) < 2:
        raise UserError(f"{place}: {list(classes)!r} are not at least two different names")
    return classes


def _input(value: Any, columns: Mapping[str, Column], place: str) -> Input:
    value = _mapping(value, place, optional={"column", "columns", "embedding", *_TAKES})
    kinds = [kind for kind in _TAKES if kind in value]
    if len(kinds) != 1:
        raise UserError(f"{place}: needs exactly one of {', '.join(_TAKES)}")
    (kind,) = kinds
    if ("column" in value) == ("columns" in value):
        raise UserError(f"{place}: needs either column, or the columns of a cross")
    if "columns" in value:
        if kind != "hash_buckets":
            raise UserError(f"{place}: a cross of columns has hash_buckets, not {kind}")
        names = _list(value["columns"], f"{place}.columns")
        taken = [_known(name, columns, f"{place}.columns[{i}]").name for i, name in enumerate(names)]
        if len(set(taken)) < len(taken) or len(taken) < 2:
            raise UserError(f"{place}.columns: {names!r} are not at least two different columns")
    else:
        column = _known(value["column"], columns, f"{place}.column")
        if column.type not in _TAKES[kind]:
            raise UserError(
                f"{place}.{kind}: is for columns of type {' or '.join(_TAKES[kind])}; {column.name} is a {column.type}"
            )
        taken = [column.name]
    embedding = _positive(value["embedding"], f"{place}.embedding") if "embedding" in value else None
    if kind == "numeric" and (embedding or value[kind] != "z_score"):
        raise UserError(f"{place}: write 'numeric: z_score', and no embedding")
    if kind == "words" and embedding:
        raise UserError(f"{place}: a model of your own embeds words; leave out embedding")
    return Input(
        encoding=Encoding(
            kind={"hash_buckets": "cross" if len(taken) > 1 else "hash"}.get(kind, kind),
            columns=tuple(taken),
            boundaries=_boundaries(value[kind], f"{place}.{kind}") if kind == "buckets" else None,
            hash_buckets=_positive(value[kind], f"{place}.{kind}") if kind == "hash_buckets" else None,
            embedding=embedding,
        ),
        vocabulary_size=_positive(value[kind], f"{place}.{kind}") if kind in ("vocabulary", "words") else None,
    )


def _split_rule(value: Any, columns: Mapping[str, Column]) -> SplitRule:
    value = _mapping(value, "split", optional={"group", "time", *_STARTS})
    if len(value.keys() & {"group", "time"}) != 1:
        raise UserError("split: needs either group or time, with a column")
    if "group" in value:
        column = _known(_mapping(value, "split", required={"group"})["group"], columns, "split.group")
        if column.type == "float":
            raise UserError(f"split.group: {column.name} is a float; groups have a name or a whole number")
        return SplitRule(column=column.name)
    value = _mapping(value, "split", required={"time", "test_from"}, optional={"validation_from"})
    column = _known(value["time"], columns, "split.time")
    if column.type not in ("time", "int"):
        raise UserError(f"split.time: {column.name} is a {column.type}; needed is a time or an int")
    starts = {}
    for key, split in _STARTS.items():
        if (start := value.get(key)) is None:
            continue
        if column.type == "time":
            start = times.seconds(pa.array([str(start)]))[0].as_py()
        if isinstance(start, bool) or not isinstance(start, int):
            known = times.TOLD if column.type == "time" else "whole number"
            raise UserError(f"split.{key}: {value[key]!r} is no {known}")
        starts[split] = start
    if starts.get("validation", -math.inf) >= starts["test"]:
        raise UserError("split.validation_from: is not before test_from, so that there would be no validation rows")
    return SplitRule(column=column.name, starts=starts)


def _refuse_leak(label: Label, inputs: set[str]) -> None:
    """A model that is given all that decides the label learns nothing."""
    if not inputs:
        raise UserError("neither deep nor wide says what a model takes")
    for key, column in (("column", label.column), *((label.task, name) for name in sorted(label.given))):
        if column in inputs:
            raise UserError(f"{LABEL}.{key}: {column} is what is predicted, and an input too; take it out of there")
    conditions = {f"{label.task}.{name}": expression for name, expression in label.targets.items()}
    for key, expression in {**conditions, "condition": label.condition}.items():
        if expression and expression.columns <= inputs:
            names = ", ".join(sorted(expression.columns))
            raise UserError(f"{LABEL}.{key}: follows from the inputs {names}; take one of them out of deep and wide")


def _known(name: Any, columns: Mapping[str, Column], place: str) -> Column:
    if not isinstance(name, str) or name not in columns:
        raise UserError(f"{place}: {unknown('column', str(name), columns)}")
    return columns[name]


def _boundaries(value: Any, place: str) -> tuple[float, ...]:
    numbers = _list(value, place)
    for i, number in enumerate(numbers):
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise UserError(f"{place}[{i}]: {number!r} is no number")
    if not numbers or any(a >= b for a, b in itertools.pairwise(numbers)):
        raise UserError(f"{place}: {numbers!r} are not ascending numbers")
    return tuple(map(float, numbers))


def _positive(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{place}: {value!r} is not a whole number of at least 1")
    return value


def _one_of(allowed: Collection[str], value: Any, place: str) -> str:
    if value not in allowed:
        raise UserError(f"{place}: {reprlib.repr(value)} is none of {', '.join(map(repr, allowed))}")
    return value


def _text(value: Any, place: str, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty):
        raise UserError(f"{place}: {reprlib.repr(value)} is no text; write it in quotes")
    return value


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise UserError(f"{place}: {reprlib.repr(value)} is no list")
    return value


def _mapping(
    value: Any, place: str, *, required: Collection[str] = (), optional: Collection[str] = ()
) -> Mapping[str, Any]:
    allowed = {*required, *optional}
    if not isinstance(value, Mapping):
        raise UserError(
            f"{place}: {reprlib.repr(value)} is no mapping; write 'key: value' of {', '.join(sorted(allowed))}"
        )
    for key in value:
        if key not in allowed:
            raise UserError(f"{place}: {unknown('key', str(key), allowed)}")
    if absent := sorted(set(required) - set(value)):
        raise UserError(f"{place}: {absent[0]} is missing")
    return value
