"""Lines of JSON objects as columns of numbers and strings: what JSON says, and nothing that is made of it.

parser = JsonParser(schema=schema)
parser.columns(chunk)["fare"]                     # float64 [N], null where a value is missing
for row, fault in parser.faults(chunk): ...       # 17, "fare: ..."
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.json

from common.errors import UserError, first_line
from components.convert.tables import arrow_columns
from components.convert.tables.quoting import Chunk
from components.convert.tables.schema import Schema

_MOST_DEPTH = 100  # Of lists and objects in each other: Arrow's parser recurses.
# A last string without an end counts as one: its quotes would otherwise all be tried as beginnings.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_TYPES = {"float": pa.float64(), "int": pa.int64(), "bool": pa.bool_()}


@dataclasses.dataclass(frozen=True)
class JsonParser:
    """Parses lines, each of which is an object."""

    schema: Schema

    def columns(self, chunk: Chunk) -> pa.RecordBatch:
        """The wanted columns of all lines; a `UserError` or `pyarrow.ArrowInvalid` says that one is not what the schema says."""
        lines = [line for line in chunk.text.splitlines() if line]
        for line in lines:
            if fault := _fault(line):
                raise UserError(fault)
            if b"NaN" in line:  # which Arrow takes for a number
                try:
                    json.loads(line, parse_constant=_refuse)
                except UserError:
                    raise
                except ValueError as error:
                    raise UserError(first_line(error)) from None
        table = pyarrow.json.read_json(
            pa.BufferReader(chunk.text),
            pyarrow.json.ReadOptions(use_threads=False, block_size=len(chunk.text) + 1),
            pyarrow.json.ParseOptions(
                explicit_schema=self._types,
                newlines_in_values=False,
                unexpected_field_behavior="ignore" if self.schema.ignore_others else "infer",
            ),
        )
        if len(table) != len(lines):
            raise UserError("several JSON objects are on one line")
        (batch,) = table.combine_chunks().to_batches()
        return arrow_columns.columns(batch, self.schema, lambda row, what: UserError(what))

    def faults(self, chunk: Chunk) -> Iterator[tuple[int, str]]:
        """The lines that are not what the schema says, by their numbers in the chunk, each with what is wrong."""
        for row, line in enumerate(filter(None, chunk.text.splitlines())):
            try:
                self.columns(dataclasses.replace(chunk, text=line))
            except pa.ArrowMemoryError:
                raise
            except (pa.ArrowException, ValueError) as error:
                yield row, first_line(error).removesuffix(" in row 0")

    @functools.cached_property
    def _types(self) -> pa.Schema:
        """The types of the wanted columns; of whatever else there is, Arrow finds them."""
        columns = self.schema.columns.values()
        return pa.schema([(column.header, _TYPES.get(column.type, pa.large_string())) for column in columns])


def headers(chunk: Chunk) -> dict[str, tuple[str, ...]]:
    """What is in some lines, each with the types that may fit it."""
    for number, line in enumerate(chunk.text.splitlines(), chunk.line):
        if line and (fault := _fault(line)):
            raise UserError(f"line {number}: {fault}")
    try:
        found = arrow_columns.headers(pyarrow.json.read_json(pa.BufferReader(chunk.text)).schema)
    except pa.ArrowInvalid as error:
        raise UserError(f"its first lines are no JSON objects of one kind ({first_line(error)})") from None
    # Arrow takes a text for a time where it can.
    return {header: (*types, "string") if types == ("time",) else types for header, types in found.items()}


def _fault(line: bytes) -> str | None:
    """Says what Arrow must not be given in a line: it may take long, look across lines, or end the process."""
    if not (line.startswith(b"{") and line.rstrip(b" \t").endswith(b"}")):
        return f"{line[:40]!r} is no JSON object, which has a line of its own"
    if _is_too_deep(line):
        return f"its values are nested more than {_MOST_DEPTH} deep"
    return None


def _is_too_deep(text: bytes) -> bool:
    """Returns whether lists and objects are in each other more than `_MOST_DEPTH` deep."""
    if text.count(b"[") + text.count(b"{") <= _MOST_DEPTH:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", text).translate(None, _NO_BRACKET):
        depth += 1 if bracket in b"[{" else -1
        if depth > _MOST_DEPTH:
            return True
    return False


def _refuse(constant: str) -> None:
    raise UserError(f"{constant} is no number in JSON")
