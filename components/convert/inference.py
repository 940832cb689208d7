"""A schema file to begin with, from what some rows of a table say; it is for people to edit.

    write(Options(dataset="parquet", source="trips.parquet", output="-"), Proposal(infer_schema="trips.yaml", label="tip"))

A column has the first type that all of its values fit, as a conversion reads them: so the file can be used as it is,
once it says what is to be predicted.
"""

import dataclasses
import glob
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import yaml

from common.errors import UserError, about, first_line, readable, unknown, writable
from common.spellings import FALSE, TRUE
from common.storage.files import open_file, write_text
from common.storage.storage import is_remote
from components.convert.expressions import connect, quoted, unquoted
from components.convert.options import Options, Proposal
from components.convert.source import LABEL, Paths
from components.convert.sources.tables import ParquetSource, TextSource

_SOURCES = {
    "csv": TextSource(name="csv", schema="-"),
    "jsonl": TextSource(name="jsonl", schema="-", json=True),
    "parquet": ParquetSource(),
}
_READS = {
    "csv": "read_csv({}, all_varchar=true, header=true, delim=',', quote='\"', escape='\"', union_by_name=true)",
    "tsv": "read_csv({}, all_varchar=true, header=true, delim='\t', quote='\"', escape='\"', union_by_name=true)",
    "jsonl": "read_json({}, format='newline_delimited', sample_size=-1, union_by_name=true)",
    "parquet": "read_parquet({}, union_by_name=true, hive_partitioning=true, hive_types_autocast=false)",
}
_WHOLE = "(0|[1-9][0-9]*)"  # A number with another zero in front is a code.
# By type, what a text is, null of one that does not fit; the likeliest type first.
_VALUES = {
    "int": f"CASE WHEN regexp_full_match({{0}}, '[ \t]*-?{_WHOLE}[ \t]*') THEN TRY_CAST({{0}} AS BIGINT) END",
    "float": f"CASE WHEN regexp_full_match({{0}}, '[ \t]*[+-]?({_WHOLE}([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?[ \t]*')"
    " AND isfinite(TRY_CAST({0} AS FLOAT)) THEN TRY_CAST({0} AS DOUBLE) END",
    "time": r"CASE WHEN regexp_full_match({0}, '\d\d\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.]\d+)?)?(Z|[+-]\d\d:\d\d)?)?')"
    " THEN TRY_CAST({0} AS TIMESTAMPTZ)::TIMESTAMP END",
    "bool": f"CASE WHEN lower(trim({{0}})) IN {TRUE} THEN 'true' WHEN lower(trim({{0}})) IN {FALSE} THEN 'false' END",
    "string": "{0}",
}
# Types that may fit a column of a dataset, by the type that DuckDB has for it; and how it becomes text.
_FITTING = {
    "csv .*": tuple(_VALUES),
    "jsonl (VARCHAR|UUID|TIME)": ("time", "string"),
    "parquet (VARCHAR|BLOB|ENUM.*)": ("time", "bool", "string"),
    ".* BOOLEAN": ("bool",),
    ".* (DATE|TIMESTAMP.*)": ("time",),
    r".* (TIME|\w*INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*|\"NULL\")": ("int", "float"),
}
_TEXTS = {
    "parquet BLOB": "TRY(decode({}))",
    "parquet TIME": "epoch({})::BIGINT",
    "jsonl TIMESTAMP WITH TIME ZONE": "{}::TIMESTAMP",
    "parquet TIMESTAMP WITH TIME ZONE": "{}::TIMESTAMP",
}
_FIGURES = {
    "rows": "count(*)",
    "wrong": "count(*) FILTER (v IS NULL AND NOT is_missing)",
    "absent": "coalesce(list(DISTINCT text) FILTER (is_missing), [])",
    "values": "count(v)",
    "distinct": "count(DISTINCT v)",
    "low": "min(v)",
    "high": "max(v)",
    "first": "any_value(v)",
    "spaces": "coalesce(avg(length(v::TEXT) - length(replace(v::TEXT, ' ', ''))), 0)",
    "some": "coalesce((list(DISTINCT v ORDER BY v) FILTER (v IS NOT NULL))[:100], [])",
}
_DEFAULTS = {"float": 0.0, "int": 0, "string": "", "bool": False, "time": 0}
_MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")
_MOST_ROWS, _MOST_VALUES = 200_000, 20_000_000  # That are looked at.
# Numbers that are categories, texts that are classes, texts that are a vocabulary; values of which every split has some.
_FEW, _CLASSES, _MANY, _LEAST = 20, 100, 1000, 10
_ID = re.compile(r"(.*[_ ])?(id|key|index|uuid)|.*(Id|ID)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Column:
    """A column with figures of its values.

    Attributes:
      wrong: Number of values that do not fit the type.
      absent: Texts that stand for a missing value.
      spaces: In a value, on average.
      some: Different values, ascending.
      kept: Texts that stand for a missing value elsewhere, but not here: there are many of them.
    """

    name: str
    header: str
    type: str
    rows: int
    wrong: int
    absent: Sequence[str | None]
    values: int
    distinct: int
    low: Any
    high: Any
    first: Any
    spaces: float
    some: Sequence[Any]
    kept: Sequence[str]

    @property
    def useless(self) -> str:
        """Why no model should have it, if none should."""
        if self.values < min(self.rows, _LEAST):
            return "it has hardly any values"
        if self.distinct == 1 and self.values == self.rows:
            return "it is always the same"
        if self.values > self.distinct or self.distinct < _FEW or self.spaces >= 2:
            return ""
        is_name = self.type == "string" or (self.type == "int" and _ID.fullmatch(self.header))
        is_count = self.type == "int" and self.high - self.low + 1 == self.values
        return "no value comes twice, so it is the row's name" if is_name or is_count else ""

    @property
    def input(self) -> dict[str, Any]:
        """Input of a model that it may be, as a schema has it."""
        if self.type in ("float", "time") or (self.type == "int" and self.distinct > _FEW):
            return {"column": self.name, "numeric": "z_score"}
        if self.spaces >= 3 and self.distinct > self.values / 2:
            return {"column": self.name, "words": _MANY}
        kind = {"hash_buckets": _MANY} if self.distinct > _MANY else {"vocabulary": self.distinct}
        return {"column": self.name, **kind, **({"embedding": 8} if self.distinct > 8 else {})}

    def line(self, *, is_label: bool = False) -> str:
        """Returns its entry among the columns, with what the values say."""
        entry = {"type": self.type} | ({"header": self.header} if self.header != self.name else {})
        if (self.values < self.rows or self.kept) and not is_label:
            entry["default"] = _DEFAULTS[self.type]
        low, high, first = (json.dumps(value, default=str)[:40] for value in (self.low, self.high, self.first))
        text = f"{self.distinct:,} different, {1 - self.values / self.rows:.1%} missing"
        text += f", {low} to {high}" if self.type not in ("string", "bool") else ""
        return f"{_flow({self.name: entry})[1:-1]}  # {text}, such as {first}"

    def predicted(self) -> dict[str, Any]:
        """Returns what the schema says of it as the label, and of rows without one."""
        if self.distinct < 2 or (self.type == "string" and self.distinct > _CLASSES):
            raise UserError(f"--label {self.header}: {self.distinct:,} different values are no classes")
        name, classes = unquoted(self.name), [*map(str, self.some)]
        if self.type == "int" and self.low >= 0 and self.high < _FEW:
            classes = [*map(str, range(self.high + 1))]
        elif self.type == "int" and self.distinct == 2:
            # What else rows may have that nobody has looked at is of neither class.
            label = {"condition": f"{name} = {self.high}", "classes": classes}
            return {LABEL: label, "filter": f"{name} IN ({self.low}, {self.high})"}
        elif self.type not in ("string", "bool"):
            classes = []
        label = {"column": self.name, "classes": classes} if classes else {"regression": self.name}
        return {LABEL: label, **({"filter": f"{name} IS NOT NULL"} if self.values < self.rows else {})}


def write(options: Options, proposal: Proposal) -> None:
    """Writes the schema file.

    Raises:
      UserError: If it exists, the source is no table, or has no such label.
    """
    others = [flag for flag in options.as_flags(but=("dataset", "source")) if flag != "--output=-"]
    if others or options.dataset not in _SOURCES:
        what = others[0] if others else f"--dataset {options.dataset}"
        raise UserError(f"{what} means nothing to --infer-schema; it takes --dataset {' or '.join(_SOURCES)}")
    if os.path.exists(path := proposal.infer_schema):
        raise UserError(f"{path}: is there already; give another name, or delete it")
    with readable(f"dataset {options.dataset!r}"):
        text = _proposed(options.dataset, options.source, proposal.label)
    with writable(f"--infer-schema {path}"):
        write_text(path, text)
    print(f"{path}: look through it, then convert with --schema {path}", flush=True)


def _relation(dataset: str, paths: Paths, folder: str) -> str:
    """Returns SQL of the table; files of a bucket are copied to the folder."""
    local = []
    for file in _SOURCES[dataset].files(paths):
        path = file.path
        if is_remote(path):
            path = f"{folder}/{len(local)}-{os.path.basename(path)}"
            with open_file(file) as raw, open(path, "wb") as copy:
                shutil.copyfileobj(raw, copy)
        local.append("'{}'".format(glob.escape(path).replace("'", "''")))
    return _READS["tsv" if dataset == "csv" and ".tsv" in local[0].lower() else dataset].format(f"[{', '.join(local)}]")


def _load(query: Any, relation: str, dataset: str) -> tuple[int, dict[str, tuple[str, ...]], pa.Table]:
    """Reads some rows all over the relation.

    Returns:
      Number of all rows; by header the types that may fit, the likeliest first; and the columns as texts.
    """
    described = query(f"SELECT column_name, column_type FROM (DESCRIBE FROM {relation})").fetchall()
    if dataset == "csv" and len(described) == 1 and set(described[0][0]) & set(";\t|,"):
        raise UserError(f"its one column is {described[0][0]!r}; write the schema by hand, with its 'delimiter'")
    fitting, texts = {}, []
    for header, kind in described:
        kind = f"{dataset} {kind}"
        fitting[header] = next((types for pattern, types in _FITTING.items() if re.fullmatch(pattern, kind)), ())
        texts.append(f"CAST({_TEXTS.get(kind, '{}').format(quoted(header))} AS TEXT)")
    ((total,),) = query(f"SELECT count(*) FROM {relation}").fetchall()
    if not total:
        raise UserError("no rows")
    rows = min(total, _MOST_ROWS, _MOST_VALUES // len(texts))
    sample = f"USING SAMPLE reservoir({rows} ROWS) REPEATABLE (0)" if rows < total else ""
    return total, fitting, query(f"SELECT {', '.join(texts)} FROM {relation} {sample}").to_arrow_table()


def _column(query: Any, type_: str, **names: str) -> _Column:
    """Returns what the column `x` of `texts` says if it has that type."""
    kept = []
    if type_ == "string":
        many = f"x IN {_MISSING[1:]} GROUP BY x HAVING count(*) * 100 >= (SELECT count(*) FROM texts)"
        kept = [text for (text,) in query(f"SELECT x FROM texts WHERE {many}").fetchall()]
    missing = ["", *(text for text in _MISSING if text not in kept)]
    values = f"CASE WHEN NOT is_missing THEN {_VALUES[type_].format('x')} END AS v"
    (figures,) = query(
        f"SELECT {', '.join(_FIGURES.values())} "
        f"FROM (SELECT coalesce(x IN {tuple(missing)}, true) AS is_missing, x AS text, {values} FROM texts)"
    ).fetchall()
    return _Column(type=type_, kept=kept, **names, **dict(zip(_FIGURES, figures, strict=True)))


def _proposed(dataset: str, paths: Paths, label: str | None) -> str:
    """Returns the text of the schema file."""
    path = pathlib.Path(paths if isinstance(paths, str) else paths[0])
    columns, names, strange = [], {LABEL}, []
    with tempfile.TemporaryDirectory() as folder, connect(threads="1") as connection:
        query = connection.sql
        relation = _relation(dataset, paths, folder)
        try:
            with about(path):
                total, fitting, texts = _load(query, relation, dataset)
        except duckdb.Error as error:
            raise UserError(f"{path}: {first_line(error)}") from None
        for i, (header, types) in enumerate(fitting.items()):
            name = re.sub(r"\W", "_", header, flags=re.ASCII)
            name = name if name[:1].isalpha() else f"c_{name}"
            while name.lower() in names:
                name += "_"
            names.add(name.lower())
            # Spellings of a label are the names of its classes.
            types = [type_ for type_ in types if type_ != "bool" or header != label or "string" not in types]
            connection.register("texts", pa.table({"x": texts.column(i)}))
            tried = (_column(query, type_, name=name, header=header) for type_ in types)
            column = next((column for column in tried if not column.wrong), None)
            columns += [column] if column else []
            strange += [] if column else [header]
    if label is not None and label not in [column.header for column in columns]:
        raise UserError(f"--label: {unknown('column', label, [column.header for column in columns])}")
    chosen = [column for column in columns if column.header == label]
    useless = [column for column in columns if column.useless and column.header != label]
    useful = [column for column in columns if not column.useless and column.header != label]
    if all("words" in column.input for column in useful):
        raise UserError(f"{path}: has no column that a model could learn from")
    kept = {text for column in columns for text in column.kept}
    kept -= {text for column in columns if column.type != "string" for text in column.absent}
    lines = [
        f"# Proposed from {columns[0].rows:,} of {total:,} rows; edit it as docs/DATASETS.md says.",
        *_entries(name=re.sub(r"\W+", "_", path.stem), origin=path.name),
        "columns:",
        *(f"  {column.line(is_label=True)}" for column in chosen),
        *(f"  {column.line()}" for column in useful),
        *(f"  # {column.line()}; left out: {column.useless}" for column in useless),
        *(f"  # {json.dumps(header)} is left out: no type takes it" for header in strange),
    ]
    if not chosen:
        lines.append(
            "# What is to be predicted, {column: NAME, classes: [...]} or {regression: NAME}; deep must not have it."
        )
    lines += _entries(**(chosen[0].predicted() if chosen else {LABEL: "TODO"}))
    # Texts take a model of one's own.
    lines += ["deep:", *(f"  {'# ' * ('words' in column.input)}- {_flow(column.input)}" for column in useful)]
    lines += _entries(missing=[text for text in _MISSING if text not in kept], other_columns="ignore")
    return "\n".join([*lines, ""])


def _entries(**entries: Any) -> list[str]:
    return [f"{key}: {_flow(value)}" for key, value in entries.items()]


def _flow(value: Any) -> str:
    """Returns a value on one line of YAML."""
    text = yaml.safe_dump([value], default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False)
    return text.strip()[1:-1]
