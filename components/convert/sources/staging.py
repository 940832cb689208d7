"""Staging of tables: DuckDB checks, labels and filters rows, which go to an Arrow file.

    with Staging(schema, "train.arrow") as staging:
        staging.add_csv(path, "trips.csv", ",")                 # A file of this machine.
        staging.add_json(path, "trips.jsonl")
        staging.add_batch(batch, texts, lambda row: f"{path}: row {row + 1:,}")
    staging.left_out, staging.skipped

The file has the schema's stored columns by name, null where a value is missing, and the label as
`label.0`, `label.1`, ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from common.errors import UserError, about, first_line
from common.manifest import REGRESSION
from common.spellings import ABSENT, FALSE, ISO_8601, KINDS, NUMBER, TRUE, WHOLE_NUMBER, marks
from components.convert.expressions import connect, literal, quoted, references, unquoted
from components.convert.schema import FLOAT32_MAX, TableSchema
from components.convert.sources.text_rows import (
    MAX_BYTES,
    Row,
    check_names,
    check_quotes,
    csv_relation,
    read_csv,
    read_header,
    read_json,
)

_STORED = {"float32": pa.float32(), "int64": pa.int64(), "string": pa.large_string()}
# Bytes of the rows that are checked together, and of those that are written together.
BATCH_BYTES, GROUP_BYTES = 64 << 20, 4 << 20
# Number of the rows that are written together, and of those that DuckDB hands over at a time.
_GROUP_ROWS, _READ_ROWS = 1 << 14, 2048
_LEFT_OUT = -1  # Takes the place of a check's number in a row that the filter leaves out.
_CELL_BYTES = 50  # Size of a Python string without its characters.
_NUMBERS = (pt.is_integer, pt.is_floating, pt.is_decimal)
_TEXTS = (
    *(pt.is_string, pt.is_large_string, pt.is_string_view),
    *(pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary),
)
# By the type of a column: predicates of the Arrow types that it takes, and what these are in words.
_TAKES = {
    "float": (_NUMBERS, "numbers"),
    "int": ((*_NUMBERS, pt.is_time), "whole numbers, and times of day as seconds since midnight"),
    "string": (_TEXTS, "texts"),
    "bool": ((pt.is_boolean, pt.is_integer, *_TEXTS), "booleans, 0 and 1, and texts that say so"),
    "time": ((pt.is_timestamp, pt.is_date, *_TEXTS), "timestamps, dates, and texts as in ISO 8601"),
}


@dataclasses.dataclass(frozen=True)
class _Check:
    """Check that a row may fail.

    Attributes:
      name: Name of the column, or of what is predicted.
      wrong: SQL of the condition that a wrong row fulfils.
      text: SQL of the wrong value.
      message: What the message says of the wrong value.
      absent: What the message says if that is null.
    """

    name: str
    wrong: str
    text: str
    message: str
    absent: str = ABSENT


class Staging:
    """Writes rows to an Arrow file, in the order in which they are added; a context manager.

    Args:
      schema: Schema of the table.
      path: Path of the Arrow file on this machine.
      skip_bad: Largest number of wrong rows that are left out.

    Attributes:
      left_out: Number of rows that the filter has left out.
      skipped: A line for each wrong row that is left out: its place, and what is wrong.
    """

    def __init__(self, schema: TableSchema, path: str, *, skip_bad: int = 0) -> None:
        self._schema, self._skip_bad = schema, skip_bad
        self.left_out, self.skipped = 0, list[str]()
        self._pending: list[pa.Table] = []
        self._connection = connect(memory_limit="1GB", temp_directory=os.path.dirname(path))
        label = pa.float32() if schema.label.task == REGRESSION else pa.int64()
        fields = [(column.name, _STORED[column.dtype]) for column in schema.stored]
        fields += [(f"label.{i}", label) for i in range(max(1, len(schema.label.targets)))]
        self._stored = pa.schema(fields)
        self._writer = pa.ipc.new_file(path, self._stored)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._writer.close()
        self._connection.close()  # Its threads would not survive a fork.

    def add_csv(self, path: str, name: str, delimiter: str) -> None:
        """Adds the rows of a CSV file in UTF-8, as in RFC 4180, with a header.

        Blank lines are no rows. Errors name the file as `name`.

        Raises:
          UserError: If the file is empty, its header or a quote is wrong, or more rows are wrong
            than may be left out, those of all files counted.
        """
        with about(name):
            header_end, header = read_header(path, delimiter)
            columns = self._check_header(header, delimiter)
            has_quotes = check_quotes(path, delimiter)
        num_rows = 0
        names = [f"c{i}" for i in range(len(header))]
        relation = csv_relation(
            path, names, header_end, delimiter, null="\0", is_parallel=not has_quotes
        )
        query, _ = self._query(
            relation, {column: (f"c{i}", pa.string()) for column, i in columns.items()}
        )
        # DuckDB is fast, but does not say in which line a wrong row is. From the batch with the
        # first one on, the reader below takes over.
        with contextlib.suppress(duckdb.Error, pa.ArrowException, OSError):
            for batch in self._connection.sql(query).to_arrow_reader(_READ_ROWS):
                values = pa.Table.from_batches([batch])
                if _wrong_rows(values):
                    break
                self._take(values)
                num_rows += len(batch)
            else:
                return
        rows = read_csv(path, delimiter, len(header), columns)
        self._add_rows(itertools.islice(rows, num_rows, None), [*columns], name)

    def add_json(self, path: str, name: str) -> None:
        """Adds the rows of a file that has a JSON object on each line.

        Blank lines are no rows. Errors name the file as `name`.

        Raises:
          UserError: If a line is too long, or more rows are wrong than may be left out.
        """
        self._add_rows(read_json(path, self._schema), [*self._schema.columns], name)

    def add_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        texts: Mapping[str, str | None],
        locate: Callable[[int], str],
    ) -> None:
        """Adds rows with typed values, whose columns `check_columns` has accepted.

        Args:
          batch: The rows; the names of their columns are the headers.
          texts: Further columns by header: a text that all rows have, whatever the column's type,
            or None.
          locate: Returns the place of a row for messages, given its position in the batch.

        Raises:
          UserError: If more rows are wrong than may be left out.
        """
        arrays = {}
        for name, column in self._schema.columns.items():
            if column.header in texts:
                arrays[name] = pa.repeat(pa.scalar(texts[column.header], pa.string()), len(batch))
            else:
                arrays[name] = _plain(batch.column(column.header), column.type)
        self._add(pa.table(arrays), locate)

    def skip(self, message: str) -> None:
        """Notes a wrong row, which is left out; the message has its place, and what is wrong.

        Raises:
          UserError: If more rows are wrong than may be left out.
        """
        self.skipped.append(message)
        if len(self.skipped) > self._skip_bad:
            more = f"; more than --skip-bad {self._skip_bad} rows are wrong"
            raise UserError(message + more * bool(self._skip_bad))

    def _check_header(self, header: Sequence[str], delimiter: str) -> dict[str, int]:
        """Returns the position of each column of the schema in a CSV header, by name of the column.

        Raises a `UserError` if the header is not what the schema says.
        """
        wanted = [column.header for column in self._schema.columns.values()]
        if not {*wanted} & {*header}:
            raise UserError(
                f"its first line {delimiter.join(header)[:80]!r} names no column of the schema "
                f"({', '.join(wanted)}); it needs a header, and the schema a 'delimiter' if what "
                f"stands between values is not {delimiter!r}"
            )
        check_names(header, self._schema)
        positions = {text: i for i, text in enumerate(header)}
        return {name: positions[column.header] for name, column in self._schema.columns.items()}

    def _add_rows(self, rows: Iterator[Row], columns: Sequence[str], name: str) -> None:
        """Adds the rows of a text file in batches. Wrong rows are noted as by `skip`.

        Args:
          rows: The number of each row's line, and its values, or what is wrong with it.
          columns: Names of the values.
          name: Name of the file in messages.

        Raises:
          UserError: If more than `skip_bad` rows are wrong, those of all files counted.
        """
        rows = _about(rows, name)
        while True:
            numbers, values, size = [], [], 0
            for number, cells in rows:
                if isinstance(cells, str):
                    self.skip(f"{name}: line {number}: {cells}")
                    continue
                numbers.append(number)
                values.append(cells)
                size += _CELL_BYTES * len(cells) + sum(map(len, filter(None, cells)))
                if size >= BATCH_BYTES:
                    break
            if not numbers:
                return
            arrays = [pa.array(column, pa.string()) for column in zip(*values, strict=True)]
            self._add(
                pa.table(arrays, names=columns),
                lambda row: f"{name}: line {numbers[row]}",  # noqa: B023  # Called at once.
            )

    def _add(self, table: pa.Table, locate: Callable[[int], str]) -> None:
        """Adds the rows of a table with the schema's columns by name; `skip` is told of wrong rows.

        `locate` returns the place of a row for messages, given its position in the table.
        """
        query, checks = self._query(
            "rows", {field.name: (quoted(field.name), field.type) for field in table.schema}
        )
        self._connection.register("rows", table)
        try:
            values = self._connection.sql(query).to_arrow_table()
        except (duckdb.DataError, duckdb.InvalidInputException) as error:
            # An expression cannot be computed for some row, and DuckDB does not say for which:
            # halving the rows finds it.
            if len(table) == 1:
                return self.skip(f"{locate(0)}: {first_line(error)}")
            half = len(table) // 2
            self._add(table[:half], locate)
            return self._add(table[half:], lambda row: locate(half + row))
        for row in _wrong_rows(values):
            number, text = values[".fault"][row].as_py().values()
            check = checks[number]
            message = check.absent if text is None else f"{text[:40]!r} {check.message}"
            self.skip(f"{locate(row)}: {check.name}: {message}")
        self._take(values)

    def _take(self, values: pa.Table) -> None:
        """Adds the rows of a query's result that have no fault to the file.

        Rows that the filter leaves out are counted; wrong rows are passed over.
        """
        checks = pc.struct_field(values[".fault"], "check")
        self.left_out += pc.sum(pc.equal(checks, _LEFT_OUT)).as_py() or 0
        values = values.filter(checks.is_null()).drop_columns([".fault"])
        self._pending.append(values.cast(self._stored))
        sizes = [(len(table), table.nbytes) for table in self._pending]
        if any(np.sum(sizes, axis=0) >= (_GROUP_ROWS, GROUP_BYTES)):
            self._flush()

    def _flush(self) -> None:
        if any(map(len, self._pending)):
            self._writer.write_table(pa.concat_tables(self._pending).combine_chunks())
        self._pending = []

    def _query(
        self, rows: str, fields: Mapping[str, tuple[str, pa.DataType]]
    ) -> tuple[str, list[_Check]]:
        """Builds the query that checks rows, and computes what is stored of them.

        Args:
          rows: SQL of a relation with the rows.
          fields: By name of each of the schema's columns, the SQL of its values in the relation,
            and their type.

        Returns:
          The query, and its checks. The query has the stored columns, the columns of the label, and
          `.fault`. This is null for a right row. For any other row, it has `check`, the number of
          the first check that the row fails, or `_LEFT_OUT`; and `text`, the wrong value.
        """
        schema = self._schema
        raw, values, checks, final = [], [], [], {}
        predicted, labels, outputs, label_checks = self._label()
        label_columns = schema.label.columns  # Computed once, because that parses SQL.
        for i, (name, column) in enumerate(schema.columns.items()):
            # `x` is the value without the texts that stand for a missing one, `v` that value in the
            # type of the schema, and `final[name]` is `v` without the numbers that mean the same.
            (source, kind), x, v = fields[name], f'"x.{i}"', f'"v.{i}"'
            raw.append(f"{_without_missing(source, kind, column.type, schema.missing)} AS {x}")
            values.append(f"{_value(x, kind, column.type)} AS {v}")
            fits = f"abs({v}) <= {FLOAT32_MAX!r}" if column.type == "float" else f"{v} IS NOT NULL"
            # A missing value of the label's columns is a fault of the label; its checks find it.
            is_required = column.default is None and name not in label_columns
            present = "" if is_required else f"{x} IS NOT NULL AND "
            checks.append(
                _Check(name, f"{present}({fits}) IS NOT TRUE", x, f"is no {KINDS[column.type]}")
            )
            final[name] = v
            if column.dtype != "string" and (numbers := marks(schema.missing, column.dtype)):
                kind = "FLOAT" if column.type == "float" else "BIGINT"
                listed = ", ".join(f"CAST('{number}' AS {kind})" for number in numbers)
                final[name] = f"CASE WHEN TRY_CAST({v} AS {kind}) NOT IN ({listed}) THEN {v} END"
                if is_required:
                    message = "is a missing value, and the schema has no default for it"
                    checks.append(_Check(name, f"{final[name]} IS NULL", x, message))
        used = label_columns | (references(schema.filter) if schema.filter else frozenset())
        named = [f"{final[name]} AS {quoted(name)}" for name in sorted(used)]
        wrong = ", ".join(check.wrong for check in checks)
        named.append(f'list_position([{wrong}], true) AS ".first"')
        inner = f"SELECT {', '.join(raw)} FROM {rows}"
        # Each layer is computed from the columns of those before it.
        for layer in (values, named, predicted, labels):
            inner = f"SELECT *, {', '.join(layer)} FROM ({inner})"
        stored = [f"{final[column.name]} AS {quoted(column.name)}" for column in schema.stored]
        texts = ", ".join(f"CAST({check.text} AS VARCHAR)" for check in checks)
        faults = [_when('".first" > 0', '".first" - 1', f'[{texts}][".first"]')]
        if schema.filter:
            # The line break ends a comment that the filter may end with.
            faults.append(_when(f"({schema.filter}\n) IS NOT TRUE", _LEFT_OUT, "NULL"))
        faults += [
            _when(check.wrong, i, check.text) for i, check in enumerate(label_checks, len(checks))
        ]
        fault = f'CASE {" ".join(faults)} END AS ".fault"'
        return (
            f"SELECT {', '.join([fault, *stored, *outputs])} FROM ({inner})",
            checks + label_checks,
        )

    def _label(self) -> tuple[list[str], list[str], list[str], list[_Check]]:
        """Builds the SQL of the label.

        Returns:
          Four lists: SQL of what the schema predicts; of the labels, as numbers, that follow from
          it; of the labels as they are stored; and the checks of the labels.
        """
        label = self._schema.label
        predicted, labels, outputs, checks = [], [], [], []
        kept = " AND ".join(f"{unquoted(name)} IS NOT NULL" for name in sorted(label.columns))
        absent = (
            "is missing, and nothing can be learnt of a row without what is predicted; leave such "
            f"rows out with 'filter: {kept}', unless its header in the schema is another's"
        )
        for j, (place, sql) in enumerate(label.sources.items()):
            p, v, name, last = f'"p.{j}"', f'"l.{j}"', place.split(".")[-1], len(label.classes) - 1
            value, fits, message = (
                f"TRY_CAST({p} AS DOUBLE)",
                f"{v} IN (0, 1)",
                "is neither 0 nor 1",
            )
            if label.task == REGRESSION:
                fits, message = f"abs({v}) <= {FLOAT32_MAX!r}", f"is no {KINDS['float']}"
            elif label.column:
                name, known, fits = label.column, f"0 to {last}", f"{v} BETWEEN 0 AND {last}"
                if self._schema.columns[name].dtype == "string":
                    known = ", ".join(label.classes)
                    value = (
                        f"list_position([{', '.join(map(literal, label.classes))}], CAST({p} "
                        "AS VARCHAR)) - 1"
                    )
                message = f"is no class (known: {known})"
            predicted.append(f"TRY(({sql}\n)) AS {p}")
            labels.append(f"{value} AS {v}")
            outputs.append(f'{v} AS "label.{j}"')
            for column in sorted(references(sql)):
                checks.append(
                    _Check(
                        column, f"({p} IS NULL AND {quoted(column)} IS NULL)", "NULL", "", absent
                    )
                )
            checks.append(
                _Check(name, f"({fits}) IS NOT TRUE", p, message, "the expression has no value")
            )
        return predicted, labels, outputs, checks


def check_columns(given: pa.Schema, texts: Mapping[str, Any], schema: TableSchema) -> None:
    """Checks the names and types of the columns of rows that are to be added.

    Args:
      given: Names and types of the columns that a file has.
      texts: Values, as `Staging.add_batch` takes them, of columns that have one text or None in all
        rows, by header. Only the headers are checked.
      schema: Schema of the table.

    Raises:
      UserError: If a column of the schema is missing or there more than once in `given` and `texts`
        together, if one of them is not in the schema and the schema does not ignore others, or if
        the schema's type of a column never takes values of the file's type, as `float` takes no
        dates.
    """
    check_names([*given.names, *texts], schema)
    for column in schema.columns.values():
        if column.header not in texts:
            kind = _value_type(given.field(column.header).type)
            accepted, takes = _TAKES[column.type]
            if not pt.is_null(kind) and not any(is_such(kind) for is_such in accepted):
                raise UserError(
                    f"column {column.header!r} is {kind}, and type {column.type} takes {takes}"
                )


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pt.is_dictionary(kind) else kind


def _plain(array: pa.Array, type_: str) -> pa.Array:
    """Returns the values of a column in types that DuckDB reads without a change.

    Texts become bytes, decimals become texts, and floats get 64 bits.
    """
    kind = _value_type(array.type)
    if pt.is_null(kind):
        return array.cast(pa.string())
    if any(is_text(kind) for is_text in _TEXTS):
        return array.cast(kind).cast(pa.large_binary())
    if pt.is_floating(kind):
        return array.cast(pa.float64())
    if pt.is_decimal(kind):
        # Arrow and DuckDB convert a decimal to a number near it, not always to the nearest.
        texts = array.cast(pa.string())
        whole = r"^(-?\d+)\.0*$|^(-?0)E[-+]?\d+$"
        return pc.replace_substring_regex(texts, whole, r"\1\2") if type_ == "int" else texts
    return array.cast(kind)


def _decoded(x: str, kind: pa.DataType) -> str:
    if pt.is_string(kind):
        return x
    return f"TRY(decode({x}))" if pt.is_large_binary(kind) else f"CAST({x} AS VARCHAR)"


def _without_missing(x: str, kind: pa.DataType, type_: str, missing: Sequence[str]) -> str:
    """Returns SQL of the values with null for NaN and for texts that stand for a missing value."""
    if pt.is_floating(kind):
        return f"nullif({x}, 'nan')"
    if not missing or not (pt.is_string(kind) or pt.is_large_binary(kind) or type_ == "bool"):
        return x
    if len(missing) == 1 and pt.is_string(kind):
        return f"nullif({x}, {literal(missing[0])})"
    nulls = " ".join(f"WHEN {literal(text)} THEN NULL" for text in missing)
    return f"CASE {_decoded(x, kind)} {nulls} ELSE {x} END"


def _value(x: str, kind: pa.DataType, type_: str) -> str:
    """Returns SQL of the values in the type of the schema, null where they are no such values."""
    text, is_text = _decoded(x, kind), pt.is_string(kind)
    if type_ == "string":
        return text if is_text else f"CASE WHEN octet_length({x}) <= {MAX_BYTES} THEN {text} END"
    if type_ == "bool":
        word = f"lower(trim({text}, ' \t\n\v\f\r'))"
        true, false = (", ".join(map(literal, spellings)) for spellings in (TRUE, FALSE))
        return f"CASE WHEN {word} IN ({true}) THEN true WHEN {word} IN ({false}) THEN false END"
    if pt.is_time(kind):
        return f"epoch_us({x}) // 1000000"
    if type_ == "time":
        iso_8601 = (
            f"CASE WHEN regexp_full_match({text}, '{ISO_8601}') THEN TRY_CAST({text} AS "
            "TIMESTAMPTZ) END"
        )
        moment = x if pt.is_temporal(kind) else iso_8601
        return f"epoch_us(date_trunc('second', CAST({moment} AS TIMESTAMP))) // 1000000"
    if is_text:
        # DuckDB's cast would also take 1_000, +-1 and other white space. A CASE WHEN would refuse
        # these too, but DuckDB's time for that is quadratic in the number of columns.
        x = f"regexp_extract({x}, '^{NUMBER if type_ == 'float' else WHOLE_NUMBER}$')"
    cast = f"TRY_CAST({x} AS {'DOUBLE' if type_ == 'float' else 'BIGINT'})"
    return (
        f"CASE WHEN {x} = trunc({x}) THEN {cast} END"
        if pt.is_floating(kind) and type_ == "int"
        else cast
    )


def _when(condition: str, check: int | str, text: str) -> str:
    """Returns a WHEN branch of the CASE expression that computes `.fault`."""
    return f"WHEN {condition} THEN {{'check': {check}, 'text': CAST({text} AS VARCHAR)}}"


def _wrong_rows(values: pa.Table) -> list[int]:
    """Returns the positions in a query's result of wrong rows: those that fail a check.

    A row that the filter leaves out is not wrong, unless one of its columns fails a check: columns
    are checked before the filter, and the label after it.
    """
    return pc.indices_nonzero(
        pc.greater(pc.struct_field(values[".fault"], "check"), _LEFT_OUT)
    ).to_pylist()


def _about(rows: Iterator[Row], name: str) -> Iterator[Row]:
    with about(name):
        yield from rows
