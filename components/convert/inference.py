"""A schema file to begin with, from the values of a table; it is for people to edit.

    write(Options(dataset="parquet", source="trips.parquet", output="-"), Proposal(infer_schema="trips.yaml", label="tip"))

DuckDB reads all rows. A column has the type that all of its values fit, as a conversion reads them: so the file can be
used as it is, once it says what is to be predicted.
"""

import dataclasses
import os
import pathlib
import re
import tempfile
from collections.abc import Sequence
from typing import Any

import duckdb
import yaml

from common.cli import as_list
from common.errors import UserError, about, first_line, readable, unknown, writable
from common.storage.files import write_text
from components.convert.expressions import connect, quoted, unquoted
from components.convert.options import Options, Proposal
from components.convert.sources.registry import find_source
from components.convert.sources.views import TABLES, create_view

_MARKS = ("NA", "N/A", "NaN", "nan", "NULL", "null")  # Of a missing value.
_DEFAULTS = {"float": 0.0, "int": 0, "string": "", "bool": False, "time": 0}
_MOST_CLASSES = 100
# The columns of the view `source`, with the fields of `_Column`. Each value becomes a text, whose
# kind is the type that a conversion could read it as. A number with another zero in front is a
# code. Only in CSV files, texts are numbers. Each split needs some values.
_COLUMNS = r"""
    WITH texts AS (SELECT coalesce(CAST(COLUMNS(*) AS VARCHAR), '') FROM source),
    cells AS (
        SELECT header, x, CASE
            WHEN x = '' THEN NULL
            WHEN x IN $marks THEN 'mark'
            WHEN regexp_full_match(x, '[ \t]*-?(0|[1-9]\d*)[ \t]*') AND TRY_CAST(x AS BIGINT) IS NOT NULL THEN 'int'
            WHEN regexp_full_match(x, '[ \t]*[+-]?((0|[1-9]\d*)([.]\d*)?|[.]\d+)([eE][+-]?\d+)?[ \t]*')
                AND isfinite(TRY_CAST(x AS FLOAT)) THEN 'float'
            WHEN regexp_full_match(x, '\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.]\d+)?)?(Z|[+-]\d\d:\d\d)?)?')
                AND TRY_CAST(x AS TIMESTAMP) IS NOT NULL THEN 'time'
            ELSE 'string' END AS kind
        FROM (UNPIVOT texts ON COLUMNS(*) INTO NAME header VALUE x)),
    figures AS (
        SELECT header, count(*) AS num_rows,
            count(*) FILTER (kind <> 'mark') AS num_values,
            count(*) FILTER (kind = 'mark') AS num_marks,
            list_sort(list(DISTINCT kind) FILTER (kind <> 'mark')) AS kinds,
            approx_count_distinct(x) FILTER (x <> '') AS num_different,
            min(x) = max(x) AS is_constant,
            min(x) FILTER (x <> '') AS example,
            min(TRY_CAST(x AS DOUBLE)) FILTER (kind IN ('int', 'float')) AS low,
            max(TRY_CAST(x AS DOUBLE)) FILTER (kind IN ('int', 'float')) AS high
        FROM cells GROUP BY header),
    typed AS (
        SELECT *, regexp_matches(data_type, '^(VARCHAR|ENUM)') AS is_text,
            CASE
                WHEN data_type = 'BOOLEAN' THEN 'bool'
                WHEN kinds = ['time'] OR regexp_matches(data_type, '^(DATE|TIMESTAMP)') THEN 'time'
                WHEN is_text AND $dataset <> 'csv' THEN 'string'
                WHEN kinds = ['int'] THEN 'int'
                WHEN kinds IN (['float'], ['float', 'int']) THEN 'float'
                WHEN is_text THEN 'string' END AS type,
            type IN ('float', 'time') OR type = 'int' AND num_different > 20 AS is_quantity,
            -- The names of features differ in more than capitals.
            regexp_replace(regexp_replace(header, '[^A-Za-z0-9_]', '_', 'g'), '^([^A-Za-z])', 'c_\1') AS plain,
            row_number() OVER (PARTITION BY lower(plain) ORDER BY column_index) AS nth
        FROM figures JOIN duckdb_columns() ON table_name = 'source' AND column_name = header)
    SELECT header, num_rows, type,
        plain || repeat('_', nth - IF(lower(plain) IN ('label', 'null'), 0, 1)) AS name,
        num_values < num_rows AS has_gaps,
        is_text AND type <> 'string' AND num_marks > 0 AS needs_marks,
        {'type': type, 'header': nullif(header, name)} AS entry,
        {'column': name,
            'numeric': IF(is_quantity, 'z_score', NULL),
            'vocabulary': IF(is_quantity, NULL, IF(num_different > 4, 1000, num_different)),  -- At most: it is not exact.
            'embedding': IF(NOT is_quantity AND num_different > 8, 8, NULL)} AS input,
        IF(type = 'int' AND low >= 0 AND high < 20, high + 1, 0)::INT AS num_codes,
        CASE
            WHEN type IS NULL THEN 'no type is proposed for ' || data_type
            WHEN num_values < 10 THEN 'it has hardly any values'
            WHEN is_constant THEN 'it is always the same'
            WHEN (type = 'string' OR type = 'int' AND regexp_full_match(header, '(.*[_ ])?(id|key|index|uuid)|.*(Id|ID)'))
                AND num_different >= 20 AND num_different > 0.8 * num_values
                THEN 'hardly a value comes twice, so it is the row''s name' END AS fault,
        format('about {:,} different, {:.1f}% missing, {}', coalesce(num_different, 0),
            100 * (1 - (num_values + IF(type = 'string', num_marks, 0)) / num_rows),
            IF(type IN ('int', 'float'), format('{:g} to {:g}', low, high), 'such as ' || to_json(left(coalesce(example, ''), 40)))
        ) AS comment
    FROM typed ORDER BY column_index"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Column:
    """A column.

    Attributes:
      num_rows: Number of rows of the table.
      type: Type in the schema; None if it is no number, time, boolean or text.
      has_gaps: Whether values are missing, or will be if another column needs the marks.
      needs_marks: Whether a text such as `NA` stands for a missing value.
      entry: Its values in the schema, None where it has none.
      input: Input of a model that it may be, likewise.
      num_codes: Number of classes, if the values are the numbers of classes.
      fault: Why no model should have it; None if it may.
      comment: Figures of the values.
    """

    header: str
    num_rows: int
    type: str | None
    name: str
    has_gaps: bool
    needs_marks: bool
    entry: dict[str, Any]
    input: dict[str, Any]
    num_codes: int
    fault: str | None
    comment: str

    def line(self, *, is_label: bool) -> str:
        """Returns the column's line in the schema file: a comment with the reason if no model should have it."""
        default = _DEFAULTS.get(self.type) if self.has_gaps and not is_label else None
        line = f"{self.name}: {{{_flow(**self.entry, default=default)}}}  # {self.comment}"
        return f"  # {line}; left out: {self.fault}" if self.fault and not is_label else f"  {line}"


def write(options: Options, proposal: Proposal) -> None:
    """Writes the schema file.

    Raises:
      UserError: If it exists, the source is no table, or has no such label.
    """
    dataset, path = options.dataset, proposal.infer_schema
    others = [flag for flag in options.as_flags(but=("dataset", "source")) if flag != "--output=-"]
    if others or dataset not in TABLES:
        [option, *_] = [*others, f"--dataset {dataset}"]
        raise UserError(
            f"{option} means nothing to --infer-schema; it takes --dataset {' or '.join(TABLES)}"
        )
    if os.path.exists(path):
        raise UserError(f"{path}: is there already; give another name, or delete it")
    with (
        readable(f"dataset {dataset!r}"),
        tempfile.TemporaryDirectory() as folder,
        connect() as connection,
    ):
        files = find_source(dataset, schema="-").files(options.source)
        source = as_list(options.source)[0]
        with about(source):
            try:
                create_view(connection, dataset, files, folder)
                text = _schema(connection, dataset, source, proposal.label)
            except duckdb.Error as error:
                raise UserError(first_line(error)) from None
    with writable(f"--infer-schema {path}"):
        write_text(path, text)
    print(f"{path}: look through it, then convert with --schema {path}", flush=True)


def _schema(
    connection: duckdb.DuckDBPyConnection, dataset: str, source: str, label: str | None
) -> str:
    """Returns the text of the schema file of the view `source`, which has the table of this path."""
    path = pathlib.PurePath(source)
    rows = (
        connection.sql(_COLUMNS, params={"marks": _MARKS, "dataset": dataset})
        .to_arrow_table()
        .to_pylist()
    )
    columns = [_Column(**row) for row in rows]
    if not columns:
        raise UserError("no rows")
    if dataset == "csv" and len(columns) == 1 and re.search(r"[;\t|,]", columns[0].header):
        raise UserError(
            f"its one column is {columns[0].header!r}; write the schema by hand, with its "
            "'delimiter'"
        )
    missing = ["", *(_MARKS if any(column.needs_marks for column in columns) else ())]
    targets = {column.header: column for column in columns if column.type}
    predicted = [
        "label: TODO  # {column: NAME, classes: [...]} or {regression: NAME}, and take it out of "
        "deep"
    ]
    if label is not None:
        if label not in targets:
            raise UserError(f"--label: {unknown('column', label, targets)}")
        predicted = _predicted(connection, targets[label], missing)
    inputs = [column for column in columns if not column.fault and column.header != label]
    if not inputs:
        raise UserError("has no column that a model could learn from")
    lines = [
        f"# Proposed from {columns[0].num_rows:,} rows; edit it as docs/SCHEMAS.md says.",
        _flow(name=re.sub(r"\W+", "_", path.stem)),
        _flow(origin=path.name),
        "columns:",
        *(column.line(is_label=column.header == label) for column in columns),
        *predicted,
        "deep:",
        *(f"  - {{{_flow(**column.input)}}}" for column in inputs),
        _flow(missing=missing),
        "other_columns: ignore",
        "",
    ]
    return "\n".join(lines)


def _predicted(
    connection: duckdb.DuckDBPyConnection, column: _Column, missing: Sequence[str]
) -> list[str]:
    """Returns the lines of the schema that make a column the label."""
    query = (
        f"SELECT DISTINCT text FROM (SELECT CAST({quoted(column.header)} AS VARCHAR) AS text FROM "
        "source) "
        f"WHERE text NOT IN $missing ORDER BY text LIMIT {_MOST_CLASSES + 1}"
    )
    values = [value for (value,) in connection.sql(query, params={"missing": missing}).fetchall()]
    classes = values if column.type in ("string", "bool") else [*map(str, range(column.num_codes))]
    if len(values) < 2 or len(classes) > _MOST_CLASSES:
        raise UserError(
            f"--label {column.header}: needs a number, or 2 to {_MOST_CLASSES} classes "
            f"({column.comment})"
        )
    label = {"column": column.name, "classes": classes} if classes else {"regression": column.name}
    return [
        _flow(label=label),
        *([_flow(filter=f"{unquoted(column.name)} IS NOT NULL")] if column.has_gaps else []),
    ]


def _flow(**entries: Any) -> str:
    """Returns entries of a mapping, but those that are None, on one line of YAML."""
    entries = {key: value for key, value in entries.items() if value is not None}
    text = yaml.safe_dump(
        entries, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.strip()[1:-1]
