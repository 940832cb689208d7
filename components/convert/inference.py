"""A schema file to begin with, from what some rows of a table say; it is for people to edit.

    write(Options(dataset="parquet", source="trips.parquet", output="-"), Proposal(infer_schema="trips.yaml", label="tip"))

A column has the first type that all of its values fit, as they are read by a conversion: so the file can be used as it is,
once it says what is to be predicted.
"""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from common.errors import UserError, readable, unknown, writable
from common.storage.files import write_text
from components.convert.options import Options, Proposal
from components.convert.pieces import Piece
from components.convert.sources.registry import READERS
from components.convert.tables.schema import DELIMITERS, Column, Label, Schema
from components.convert.tables.table_block import ARROW
from components.convert.tables.table_source import TableSource
from components.convert.writing.label_feature import LABEL

_DATASETS = ("csv", "jsonl", "parquet")
_PIECE_BYTES = 64 << 20
_PLACES = 8  # all over the table, at which rows are looked at
_DEFAULTS = {"float": 0.0, "int": 0, "string": "", "bool": False, "time": 0}
_MISSING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null"]
# Numbers that are categories, texts that are classes, texts that are a vocabulary; values of which every split has some.
_FEW, _CLASSES, _MANY, _LEAST = 20, 100, 1000, 10
_ID = re.compile(r"(.*[_ ])?(id|key|index|uuid)|.*(Id|ID)")
_TODO = {LABEL: "TODO"}
# Of no column: any table can be opened with it.
_NOTHING = Schema(
    name="-", origin="-", columns={}, label=Label(), ignore_others=True, missing=tuple(_MISSING), content={}
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Seen:
    """A column with the values that were looked at, null where one is missing."""

    name: str
    header: str
    type: str
    array: pa.Array

    @functools.cached_property
    def values(self) -> pa.Array:
        return self.array.drop_null()

    @functools.cached_property
    def different(self) -> pa.Array:
        return self.values.unique().sort()

    @property
    def spaces(self) -> float:
        return pc.mean(pc.count_substring(self.values, " ")).as_py() if self.type == "string" else 0

    @property
    def useless(self) -> str:
        """Why no model should have it, if none should."""
        if self.array.null_count and len(self.values) < _LEAST:
            return "it has hardly any values"
        if len(self.different) == 1 and not self.array.null_count:
            return "it is always the same"
        if len(self.values) > len(self.different) or len(self.different) < _FEW or self.spaces >= 2:
            return ""
        numbers = self.type == "int" and self.different[-1].as_py() - self.different[0].as_py() + 1
        named = self.type == "string" or (self.type == "int" and _ID.fullmatch(self.header))
        return "no value comes twice, so it is the row's name" if named or numbers == len(self.values) else ""

    @property
    def input(self) -> dict[str, Any]:
        """What a model makes of it."""
        count = len(self.different)
        if self.type in ("float", "time") or (self.type == "int" and count > _FEW):
            return {"column": self.name, "numeric": "z_score"}
        if self.spaces >= 3 and count > len(self.values) / 2:
            return {"column": self.name, "words": _MANY}
        kind = {"hash_buckets": _MANY} if count > _MANY else {"vocabulary": count}
        return {"column": self.name, **kind, **({"embedding": 8} if count > 8 else {})}

    def line(self, *, default: bool) -> str:
        """Its entry among the columns, with what the values say."""
        entry = {"type": self.type} | ({"header": self.header} if self.header != self.name else {})
        entry |= {"default": _DEFAULTS[self.type]} if default and self.array.null_count else {}
        said = f"{len(self.different):,} different, {self.array.null_count / max(1, len(self.array)):.1%} missing"
        if len(self.values):
            low, high, first = self.different[0], self.different[-1], self.values[0]
            said += "" if self.type in ("string", "bool") else f", {self._told(low)} to {self._told(high)}"
            said += f", such as {self._told(first)}"
        return f"{_flow({self.name: entry})[1:-1]}  # {said}"

    def _told(self, value: pa.Scalar) -> str:
        if self.type == "time":
            return str(np.datetime64(value.as_py(), "s"))
        return f"{value.as_py():.6g}" if self.type == "float" else json.dumps(value.as_py())[:40]

    def predicted(self) -> dict[str, Any]:
        """What the schema says of it as the label, and of rows without one."""
        present = {"present": self.name}
        kept = {"filter": present} if self.array.null_count else {}
        if (count := len(self.different)) < 2 or (self.type == "string" and count > _CLASSES):
            raise UserError(f"--label {self.header}: {count:,} different values are no classes")
        low, high = self.different[0].as_py(), self.different[-1].as_py()
        if self.type in ("string", "bool"):
            return {LABEL: {"column": self.name, "classes": self.different.to_pylist()}, **kept}
        if self.type == "int" and low >= 0 and high < _FEW:
            return {LABEL: {"column": self.name, "classes": [str(i) for i in range(high + 1)]}, **kept}
        if self.type == "int" and count == 2:
            # What else rows may have that nobody has looked at is of neither class.
            known = {"any": [{"equal": [self.name, low]}, {"equal": [self.name, high]}]}
            condition = {"condition": {"equal": [self.name, high]}, "classes": [str(low), str(high)]}
            return {LABEL: condition, "filter": {"all": [present, known]} if kept else known}
        return {LABEL: {"regression": self.name}, **kept}


def write(options: Options, proposal: Proposal) -> None:
    """Writes the schema file; refuses one that is there, a source that is no table, and a label that it does not have."""
    others = [flag for flag in options.as_flags(but=("dataset", "source")) if flag != "--output=-"]
    if others or options.dataset not in _DATASETS:
        what = others[0] if others else f"--dataset {options.dataset}"
        raise UserError(f"{what} means nothing to --infer-schema; it takes --dataset {' or '.join(_DATASETS)}")
    if os.path.exists(path := proposal.infer_schema):
        raise UserError(f"{path}: is there already; give another name, or delete it")
    reader = dataclasses.replace(READERS[options.dataset], schema=_NOTHING)
    with readable(f"dataset {options.dataset!r}"):
        cut = reader.cut(options.source, pieces=_PLACES, piece_bytes=_PIECE_BYTES)
        source = options.source if isinstance(options.source, str) else options.source[0]
        table = reader.open(cut)
        headers = list(table.headers())
        if options.dataset == "csv" and len(headers) == 1 and set(headers[0]) & set(DELIMITERS):
            raise UserError(
                f"{source}: its one column is {headers[0]!r}; write the schema by hand, with its 'delimiter'"
            )
        text = _proposed(table, cut.pieces, source, proposal.label)
    with writable(f"--infer-schema {path}"):
        write_text(path, text)
    print(f"{path}: look through it, then convert with --schema {path}", flush=True)


def _proposed(table: TableSource, pieces: Sequence[Piece], source: str, label: str | None) -> str:
    at = [pieces[i] for i in sorted({i * len(pieces) // _PLACES for i in range(_PLACES)})]
    names, seen, strange, faults = {LABEL}, [], [], []
    for header, types in table.headers().items():
        if header == label:  # whose spellings are the names of the classes
            types = [t for t in types if t != "bool" or "string" not in types]
        name = re.sub(r"\W", "_", header, flags=re.ASCII)
        name = name if name[:1].isalpha() else f"c_{name}"
        while name in names:
            name += "_"
        names.add(name)
        found = next((f for t in types if (f := _seen(table, at, name, header, t, faults)) and header), None)
        (seen if found else strange).append(found or header)
    if faults and not seen:  # the rows themselves are wrong then
        raise faults[-1]
    chosen = next((column for column in seen if column.header == label), None)
    if label is not None and chosen is None:
        raise UserError(f"--label: {unknown('column', label, [column.header for column in seen])}")
    useful = [column for column in seen if column is not chosen and not column.useless]
    if all("words" in column.input for column in useful):
        raise UserError(f"{source}: has no column that a model could learn from")
    predicted = chosen.predicted() if chosen else _TODO
    path = pathlib.Path(source)
    return "\n".join(
        [
            f"# Proposed from {len(seen[0].array):,} of {sum(p.extent for p in pieces):,} rows; edit it as docs/DATASETS.md says.",
            *_entries(name=re.sub(r"\W+", "_", path.stem), origin=path.name),
            "columns:",
            *(f"  {column.line(default=column is not chosen)}" for column in (chosen, *useful) if column),
            *(f"  # {c.line(default=True)}; left out: {c.useless}" for c in seen if c is not chosen and c.useless),
            *(f"  # {json.dumps(header)} is left out: no type takes it" for header in strange),
            *[
                "# What is to be predicted, {column: NAME, classes: [...]} or {regression: NAME}; deep must not have it."
            ][chosen is not None :],
            *_entries(**predicted),
            "deep:",
            *(f"  {'# ' * ('words' in c.input)}- {_flow(c.input)}" for c in useful),  # texts take a model of one's own
            *_entries(missing=_MISSING, other_columns="ignore"),
            "",
        ]
    )


def _seen(
    table: TableSource, at: Sequence[Piece], name: str, header: str, type_: str, faults: list[UserError]
) -> _Seen | None:
    """The column, if it has that type; else what is wrong is added to the faults."""
    default = "false" if type_ == "bool" else _DEFAULTS[type_]
    columns = {name: Column(name=name, header=header, type=type_, default=default)}
    probe = dataclasses.replace(table, schema=dataclasses.replace(_NOTHING, columns=columns))
    try:
        blocks = [block.columns[name] for piece in at for block in itertools.islice(probe.batches(piece), 1)]
    except UserError as error:
        faults.append(error)
        return None
    return _Seen(name=name, header=header, type=type_, array=pa.concat_arrays([pa.array([], ARROW[type_]), *blocks]))


def _entries(**entries: Any) -> list[str]:
    return [f"{key}: {_flow(value)}" for key, value in entries.items()]


def _flow(value: Any) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump([value], default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False)
    return text.strip()[1:-1]
