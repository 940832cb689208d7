"""Staging of tables: DuckDB checks, labels and filters rows, which go to an Arrow file.

    with Staging(schema, "train.arrow") as staging:
        staging.add_csv(path, "trips.csv", ",")         # A file of this machine.
        staging.add_json(path, "trips.jsonl")
        staging.add_parquet(path, "trips.parquet")
    staging.left_out, staging.skipped

The file has the schema's stored columns by name, null where a value is missing, and the label as
`label.0`, `label.1`, ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import UserError, about, first_line
from common.manifest import REGRESSION
from common.spellings import ABSENT, FALSE, ISO_8601, KINDS, NUMBER, TRUE, WHOLE_NUMBER, marks
from components.convert.expressions import (
    INTEGERS,
    NUMBERS,
    connect,
    literal,
    quoted,
    references,
    unquoted,
)
from components.convert.schema import FLOAT32_MAX, TableSchema
from components.convert.sources.text_rows import (
    MAX_BYTES,
    Row,
    check_names,
    check_quotes,
    csv_relation,
    parquet_relation,
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
_FLOATS = ("FLOAT", "DOUBLE")
_CELL_BYTES = 50  # Size of a Python string without its characters.
# By the type of a column: a pattern of DuckDB's types that it takes, and what these are in words.
# Texts are taken too, as in CSV files.
_TAKES = {
    "float": (NUMBERS, "numbers"),
    "int": (rf"{NUMBERS}|TIME(_NS)?", "whole numbers, and times of day as seconds since midnight"),
    "string": ("VARCHAR", "texts"),
    "bool": (f"BOOLEAN|{INTEGERS}", "booleans, 0 and 1"),
    "time": ("TIMESTAMP.*|DATE", "timestamps and dates"),
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
        # The time for common subexpressions is quadratic in the number of columns.
        self._connection.execute(
            "SET disabled_optimizers = current_setting('disabled_optimizers') || "
            "',common_subexpressions'"
        )
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
        fields = {column: (f"c{i}", "VARCHAR") for column, i in columns.items()}
        # DuckDB is fast, but does not say in which line a wrong row is. From the batch with the
        # first one on, the reader below takes over.
        with contextlib.suppress(duckdb.Error, pa.ArrowException, OSError):
            for values, wrong in self._check(relation, fields, "0"):
                if wrong:
                    break
                num_rows += len(values)
                self._take(values)
            else:
                return
        rows = read_csv(path, delimiter, len(header), columns)
        self._add_rows(itertools.islice(rows, num_rows, None), [*columns], name)

    def add_json(self, path: str, name: str) -> None:
        """Adds the rows of a file that has a JSON object on each line.

        Blank lines are no rows. Errors name the file as `name`.

        Raises:
          UserError: If a line is too long, or more rows are wrong than may be left out, those of
            all files counted.
        """
        self._add_rows(read_json(path, self._schema), [*self._schema.columns], name)

    def add_parquet(self, path: str, name: str) -> None:
        """Adds the rows of a Parquet file. Errors name the file as `name`.

        Folders in the path may give columns by names such as `year=2024`.

        Raises:
          UserError: If the file is damaged, encrypted or no Parquet file, its columns are not what
            the schema says, or more rows are wrong than may be left out.
          MemoryError: If a row group is too large.
        """
        relation, fields = parquet_relation([path]), {}
        try:
            table = self._connection.sql(f"FROM {relation}")
            with about(name):
                check_names(table.columns, self._schema)
                kinds = dict(zip(table.columns, map(str, table.types), strict=True))
                for column in self._schema.columns.values():
                    kind, (accepted, takes) = kinds[column.header].strip('"'), _TAKES[column.type]
                    if not re.fullmatch(f"{accepted}|VARCHAR|NULL", kind):
                        raise UserError(
                            f"column {column.header!r} is {kind}; type {column.type} takes {takes}"
                        )
                    fields[column.name] = _plain(quoted(column.header), kind, column.type)
            self._add(relation, fields, "file_row_number + 1", f"{name}: row")
        except duckdb.OutOfMemoryException as error:
            raise MemoryError from error
        except duckdb.Error as error:
            raise UserError(
                f"{name}: cannot be read as a Parquet file ({first_line(error)})"
            ) from None

    def skip(self, message: str) -> None:
        """Notes a wrong row in `skipped`; the message has its place, and what is wrong.

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
            table = pa.table([*arrays, pa.array(numbers)], [*columns, ".line"])
            self._connection.register("rows", table)
            fields = {column: (quoted(column), "VARCHAR") for column in columns}
            self._add("rows", fields, '".line"', f"{name}: line")

    def _add(
        self, rows: str, fields: Mapping[str, tuple[str, str]], number: str, place: str
    ) -> None:
        """Adds the rows of a relation; `skip` is told of wrong rows.

        Args:
          rows: SQL of the relation.
          fields: As in `_check`.
          number: SQL of a row's number in messages.
          place: What stands before the number in messages.

        Raises:
          UserError: If more than `skip_bad` rows are wrong, those of all files counted.
          duckdb.Error: If the relation cannot be read.
        """
        for values, wrong in self._check(rows, fields, number):
            for row, fault in wrong:
                self.skip(f"{place} {row}: {fault}")
            self._take(values)

    def _check(
        self, rows: str, fields: Mapping[str, tuple[str, str]], number: str
    ) -> Iterator[tuple[pa.Table, list[tuple[int, str]]]]:
        """Yields the rows of a relation in order, some at a time, as `_query` has them.

        With them come the wrong ones: the number of each, and what is wrong.

        Args:
          rows: SQL of the relation.
          fields: By name of each of the schema's columns, the SQL of its values in the relation,
            and their type in DuckDB.
          number: SQL of a row's number.

        Raises:
          duckdb.Error: If the relation cannot be read.
        """
        query, checks = self._query(rows, fields, number)
        for batch in self._connection.sql(query).to_arrow_reader(_READ_ROWS):
            values, wrong = pa.Table.from_batches([batch]), []
            is_wrong = pc.greater(pc.struct_field(values[".fault"], "check"), _LEFT_OUT)
            for row in pc.indices_nonzero(is_wrong).to_pylist():
                i, text, place = values[".fault"][row].as_py().values()
                what = checks[i].absent if text is None else f"{text[:40]!r} {checks[i].message}"
                wrong.append((place, f"{checks[i].name}: {what}"))
            yield values, wrong

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
        self, rows: str, fields: Mapping[str, tuple[str, str]], number: str
    ) -> tuple[str, list[_Check]]:
        """Builds the query that checks rows, and computes what is stored of them.

        Args:
          rows: SQL of a relation with the rows.
          fields: By name of each of the schema's columns, the SQL of its values in the relation,
            and their type in DuckDB.
          number: SQL of a row's number.

        Returns:
          The query, and its checks. The query has the stored columns, the columns of the label, and
          `.fault`. This is null for a right row. For any other row, it has `check`, the number of
          the first check that the row fails, or `_LEFT_OUT`; `text`, the wrong value; and `row`,
          the number of the row.
        """
        schema = self._schema
        raw, values, checks, final = [f'{number} AS ".row"'], [], [], {}
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
        if schema.filter:
            # The line break ends a comment that the filter may end with.
            predicted.append(f'TRY(CASE WHEN ({schema.filter}\n) THEN 1 ELSE 0 END) AS ".kept"')
            uncomputable = "cannot be computed for the values of this row"
            label_checks.insert(0, _Check("filter", '".kept" IS NULL', "NULL", "", uncomputable))
        inner = f"SELECT {', '.join(raw)} FROM {rows}"
        # Each layer is computed from the columns of those before it.
        for layer in (values, named, predicted, labels):
            inner = f"SELECT *, {', '.join(layer)} FROM ({inner})"
        stored = [f"{final[column.name]} AS {quoted(column.name)}" for column in schema.stored]
        texts = ", ".join(f"CAST({check.text} AS VARCHAR)" for check in checks)
        faults = [_when('".first" > 0', '".first" - 1', f'[{texts}][".first"]')]
        if schema.filter:
            faults.append(_when('".kept" = 0', _LEFT_OUT, "NULL"))
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


def _plain(x: str, kind: str, type_: str) -> tuple[str, str]:
    """Returns SQL of the values of a Parquet column, and their type; decimals become texts."""
    if kind != "NULL" and not kind.startswith("DECIMAL"):
        return x, kind
    # DuckDB converts a decimal to a number near it, not always to the nearest.
    text = f"CAST({x} AS VARCHAR)"
    return f"regexp_replace({text}, '[.]0*$', '')" if type_ == "int" else text, "VARCHAR"


def _without_missing(x: str, kind: str, type_: str, missing: Sequence[str]) -> str:
    """Returns SQL of the values with null for NaN and for texts that stand for a missing value."""
    if kind in _FLOATS:
        # By the statistics of a file, which leave NaN out, DuckDB would optimise `x = 'nan'` away.
        return f"CASE WHEN NOT isnan({x}) THEN {x} END"
    if not missing or (kind != "VARCHAR" and type_ != "bool"):
        return x
    nulls = " ".join(f"WHEN {literal(text)} THEN NULL" for text in missing)
    return f"CASE CAST({x} AS VARCHAR) {nulls} ELSE {x} END"


def _value(x: str, kind: str, type_: str) -> str:
    """Returns SQL of the values in the type of the schema, null where they are no such values."""
    text, is_text = f"CAST({x} AS VARCHAR)", kind == "VARCHAR"
    if type_ == "string":
        return f"CASE WHEN strlen({x}) <= {MAX_BYTES} THEN {x} END"
    if type_ == "bool":
        word = f"lower(trim({text}, ' \t\n\v\f\r'))"
        true, false = (", ".join(map(literal, spellings)) for spellings in (TRUE, FALSE))
        return f"CASE WHEN {word} IN ({true}) THEN true WHEN {word} IN ({false}) THEN false END"
    if kind in ("TIME", "TIME_NS"):
        return f"epoch_us({x}) // 1000000"
    if type_ == "time":
        iso_8601 = (
            f"CASE WHEN regexp_full_match({text}, '{ISO_8601}') THEN TRY_CAST({text} AS "
            "TIMESTAMPTZ) END"
        )
        moment = iso_8601 if is_text else x
        return f"epoch_us(date_trunc('second', CAST({moment} AS TIMESTAMP))) // 1000000"
    if is_text:
        # DuckDB's cast would also take 1_000, +-1 and other white space. A CASE WHEN would refuse
        # these too, but DuckDB's time for that is quadratic in the number of columns.
        x = f"regexp_extract({x}, '^{NUMBER if type_ == 'float' else WHOLE_NUMBER}$')"
    cast = f"TRY_CAST({x} AS {'DOUBLE' if type_ == 'float' else 'BIGINT'})"
    return (
        f"CASE WHEN {x} = trunc({x}) THEN {cast} END"
        if kind in _FLOATS and type_ == "int"
        else cast
    )


def _when(condition: str, check: int | str, text: str) -> str:
    """Returns a WHEN branch of the CASE expression that computes `.fault`."""
    fields = f"'check': {check}, 'text': CAST({text} AS VARCHAR), 'row': \".row\""
    return f"WHEN {condition} THEN {{{fields}}}"


def _about(rows: Iterator[Row], name: str) -> Iterator[Row]:
    with about(name):
        yield from rows
