"""Proposes a schema file, for people to edit, from the values of a table.

    options = Options(dataset="parquet", source="trips.parquet", output="-")
    write(options, Proposal(infer_schema="trips.yaml", label="tip"))

DuckDB reads all rows. A column gets the type that all of its values fit, as a conversion reads
them. The file can therefore be used as it is, once it says what to predict.
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
from common.errors import UserError, about, readable, unknown, writable
from common.storage.files import write_text
from components.convert.expressions import connect, quoted, unquoted
from components.convert.options import Options, Proposal
from components.convert.sources.registry import find_source
from components.convert.sources.tables import ENDINGS
from components.convert.sources.views import create_view, table_errors

# Texts that may stand for a missing value.
_MARKS = ("NA", "N/A", "NaN", "nan", "NULL", "null")
_DEFAULTS = {"float": 0.0, "int": 0, "string": "", "bool": False, "time": 0}
_MOST_CLASSES = 100
# Query for the columns of the view `source`, with the fields of `_Column`. It turns each value into
# a text, whose `kind` is the type that a conversion could read it as. A number with a leading zero
# is a code, and so a string. Only texts of CSV files can be numbers. A column needs 10 values to be
# an input, so that each split has some.
_COLUMNS = (
    r"""
    WITH texts AS (SELECT coalesce(CAST(COLUMNS(*) AS VARCHAR), '') FROM source),
    cells AS (
        SELECT header, x, CASE
            WHEN x = '' THEN NULL
            WHEN x IN $marks THEN 'mark'
            WHEN regexp_full_match(x, '[ \t]*-?(0|[1-9]\d*)[ \t]*')"""
    r""" AND TRY_CAST(x AS BIGINT) IS NOT NULL THEN 'int'
            WHEN regexp_full_match(x, """
    r"""'[ \t]*[+-]?((0|[1-9]\d*)([.]\d*)?|[.]\d+)([eE][+-]?\d+)?[ \t]*')
                AND isfinite(TRY_CAST(x AS FLOAT)) THEN 'float'
            WHEN regexp_full_match(x, """
    r"""'\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.]\d+)?)?(Z|[+-]\d\d:\d\d)?)?')
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
            mode(CASE
                WHEN regexp_full_match(x, '[ \t]*[+-]?\d[\d.]*,\d+[ \t]*')
                    THEN '; a number has a point and no comma'
                WHEN regexp_full_match(x, '\d\d?[./-]\d\d?[./-]\d{4}(\D.*)?')
                    THEN '; a time is written 2024-01-31'
                WHEN regexp_full_match(x, '(?i)true|false|t|f|yes|no|y|n')
                    THEN '; the type bool reads it too'
                WHEN regexp_full_match(x, '(\S+\s+){4,}\S.*')
                    THEN '; if it is free text, take words: N'
                ELSE '' END) FILTER (kind = 'string') AS hint,
            min(TRY_CAST(x AS DOUBLE)) FILTER (kind IN ('int', 'float')) AS low,
            max(TRY_CAST(x AS DOUBLE)) FILTER (kind IN ('int', 'float')) AS high,
            median(coalesce(TRY_CAST(x AS DOUBLE), epoch(TRY_CAST(x AS TIMESTAMP))))
                FILTER (kind IN ('int', 'float', 'time')) AS middle
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
            regexp_replace(regexp_replace(header, '[^A-Za-z0-9_]', '_', 'g'), """
    r"""'^([^A-Za-z])', 'c_\1') AS plain,
            row_number() OVER (PARTITION BY lower(plain) ORDER BY column_index) AS nth
        FROM figures JOIN duckdb_columns() ON table_name = 'source' AND column_name = header)
    SELECT header, num_rows, type,
        plain || repeat('_', nth - IF(lower(plain) IN ('label', 'null'), 0, 1)) AS name,
        num_values < num_rows AS has_gaps, IF(is_quantity, middle, NULL) AS middle,
        is_text AND type <> 'string' AND num_marks > 0 AS needs_marks,
        {'type': type, 'header': nullif(header, name)} AS entry,
        {'column': name,
            'numeric': IF(is_quantity, 'z_score', NULL),
            'vocabulary': IF(is_quantity, NULL, IF(num_different > 4, 1000, num_different)),"""
    r"""  -- At most: it is not exact.
            'embedding': IF(NOT is_quantity AND num_different > 8, 8, NULL)} AS input,
        IF(type = 'int' AND low >= 0 AND high < 20, high + 1, 0)::INT AS num_codes,
        CASE
            WHEN type IS NULL THEN 'no type is proposed for ' || data_type
            WHEN num_values < 10 THEN 'it has hardly any values'
            WHEN is_constant THEN 'it is always the same'
            WHEN (type = 'string' OR type = 'int' AND """
    r"""regexp_full_match(header, '(.*[_ ])?(id|key|index|uuid)|.*(Id|ID)'))
                AND num_different >= 20 AND num_different > 0.8 * num_values
                THEN 'hardly a value comes twice, so it is the row''s name' END AS fault,
        format('about {:,} different, {:.1f}% missing, {}', coalesce(num_different, 0),
            100 * (1 - (num_values + IF(type = 'string', num_marks, 0)) / num_rows),
            IF(type IN ('int', 'float'), format('{:g} to {:g}', low, high), """
    r"""'such as ' || to_json(left(coalesce(example, ''), 40)))
        ) || IF(type = 'string', coalesce(hint, ''), '') AS comment
    FROM typed ORDER BY column_index"""
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of the table, and what the schema file can say of it.

    Attributes:
      header: Name in the table.
      num_rows: Number of rows of the table.
      type: Type in the schema; None if the schema has none for such values, as for lists.
      name: Name in the schema, which differs from all others in more than capitals.
      has_gaps: Whether some values are empty, or one of `_MARKS`.
      middle: Median of a quantity, of times in seconds since 1970; else None.
      needs_marks: Whether `_MARKS` have to stand for missing values, so that the others fit
        the type.
      entry: Keys of the column in the schema; None for a key that is left out.
      input: Keys of the column as an input of a model, likewise.
      num_codes: Number of classes if the values can be the numbers of classes; else 0.
      fault: Why no model should take the column; None if a model may.
      comment: Figures of the values, in words.
    """

    header: str
    num_rows: int
    type: str | None
    name: str
    has_gaps: bool
    middle: float | None
    needs_marks: bool
    entry: dict[str, Any]
    input: dict[str, Any]
    num_codes: int
    fault: str | None
    comment: str

    def line(self, *, is_label: bool) -> str:
        """Returns the column's line in the schema file.

        A column that no model should take is commented out, with the reason, unless it is
        the label.

        Args:
          is_label: Whether the column is what is predicted. It gets no default then.
        """
        entry, comment = dict(self.entry), self.comment
        if self.has_gaps and not is_label and self.type:
            default: Any = _DEFAULTS[self.type]
            if self.middle is not None:  # A 0 may be far from all values.
                default = type(default)(float(f"{self.middle:.6g}"))
            entry["default"] = default
            if default != "":  # Else a gap would look like a value.
                entry["indicator"] = True
                comment += f"; {default} takes the place of a missing value"
        line = f"{self.name}: {{{_flow(**entry)}}}  # {comment}"
        return f"  # {line}; left out: {self.fault}" if self.fault and not is_label else f"  {line}"


def write(options: Options, proposal: Proposal) -> None:
    """Writes the proposed schema file, and prints its path.

    Args:
      options: Kind of the table in `dataset`, and its files in `source`. All other options are as
        by default; `output` is `-`.
      proposal: Path of the schema file, and optionally the header of the column to predict.

    Raises:
      UserError: If another option is set, the dataset is no table in files, the schema file exists
        or cannot be written, the table cannot be read or has no rows or no column for a model, or
        it has no such label, or one that is constant or has more than 100 classes.
      ConnectionError: If a store does not answer.
    """
    dataset, path = options.dataset, proposal.infer_schema or ""
    others = [flag for flag in options.as_flags(but=("dataset", "source")) if flag != "--output=-"]
    if others or dataset not in ENDINGS:
        [option, *_] = [*others, f"--dataset {dataset}"]
        raise UserError(
            f"{option} means nothing to --infer-schema; it takes --dataset {' or '.join(ENDINGS)}"
        )
    if os.path.exists(path):
        raise UserError(f"{path}: is there already; give another name, or delete it")
    with (
        readable(f"dataset {dataset!r}"),
        tempfile.TemporaryDirectory() as folder,
        connect() as connection,
    ):
        files = find_source(dataset, options.source, schema="-").files(options.source)
        source = as_list(options.source)[0]
        with about(source), table_errors():
            delimiter = create_view(connection, dataset, files, folder)
            text = _schema(connection, dataset, source, proposal.label, delimiter)
    with writable(f"--infer-schema {path}"):
        write_text(path, text)
    print(f"{path}: look through it, then convert with --schema {path}", flush=True)


def _schema(
    connection: duckdb.DuckDBPyConnection,
    dataset: str,
    source: str,
    label: str | None,
    delimiter: str | None,
) -> str:
    """Returns the text of a schema file for the view `source`.

    Args:
      connection: DuckDB with the view.
      dataset: Kind of the table.
      source: Path of the table's file, which gives the schema its name and origin.
      label: Header of the column to predict; None to leave that to be filled in.
      delimiter: Delimiter of CSV files, if it is not that of their names.

    Raises:
      UserError: If the table has no rows, no column for a model, or no such label; or if the label
        is constant or has more than 100 classes.
    """
    path = pathlib.PurePath(source)
    rows = (
        connection.sql(_COLUMNS, params={"marks": _MARKS, "dataset": dataset})
        .to_arrow_table()
        .to_pylist()
    )
    columns = [_Column(**row) for row in rows]
    if not columns:
        raise UserError("no rows")
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
        *([_flow(delimiter=delimiter)] if delimiter else []),
        "other_columns: ignore",
        "",
    ]
    return "\n".join(lines)


def _predicted(
    connection: duckdb.DuckDBPyConnection, column: _Column, missing: Sequence[str]
) -> list[str]:
    """Returns the lines of the schema file that say to predict a column.

    Its values are classes if they are texts, booleans or integers from 0 to 19, else numbers. If
    some are missing, a second line is a filter that leaves these rows out.

    Args:
      connection: DuckDB with the view `source`.
      column: The column.
      missing: Texts that stand for a missing value.

    Raises:
      UserError: If the column is constant, or has more than 100 classes.
    """
    query = (
        f"SELECT DISTINCT text FROM (SELECT CAST({quoted(column.header)} AS VARCHAR) AS text FROM "
        f"source) WHERE text NOT IN $missing ORDER BY text LIMIT {_MOST_CLASSES + 1}"
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
    """Returns entries, without those that are None, as the inside of a one-line YAML mapping."""
    entries = {key: value for key, value in entries.items() if value is not None}
    text = yaml.safe_dump(
        entries, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return text.strip()[1:-1]
