"""The rows of Parquet files: footers alone are read to cut them, and of the row groups of a piece the wanted columns."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import UserError, about
from common.storage.files import open_random_access
from common.storage.storage import File, map_in_threads
from components.convert.pieces import Cut, Piece
from components.convert.tables import arrow_columns
from components.convert.tables.schema import Schema
from components.convert.tables.table_block import ARROW, TableBlock
from components.convert.tables.table_source import TableSource

_NULL = "__HIVE_DEFAULT_PARTITION__"
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 4 << 20
_HELD_BYTES = 32 << 20  # of the wanted columns, that are read at once
_MAGIC_BYTES = 8  # behind the footer: its size, and what says that this is Parquet


def cut(found: Sequence[tuple[File, Mapping[str, str]]], schema: Schema, *, pieces: int, piece_bytes: int) -> Cut:
    """Puts neighbouring row groups of files together; of each file there are the columns that its folders' names say."""
    footers = map_in_threads(lambda file: _checked(*file, schema), found)
    rows = [footer.num_rows for footer in footers]
    if not any(rows):
        raise UserError(f"{found[0][0].path}{f' and {len(found) - 1} more' * (len(found) > 1)}: no rows")
    total = sum(footer.row_group(i).total_byte_size for footer in footers for i in range(footer.num_row_groups))
    starts = list(itertools.accumulate(rows, initial=0))
    cuts = (
        _pieces(footer, min(piece_bytes, total // pieces), file=i, position=starts[i])
        for i, footer in enumerate(footers)
    )
    facts = [
        {"file": dataclasses.asdict(file), "footer_bytes": footer.serialized_size, "texts": texts, "start": start}
        for (file, texts), footer, start in zip(found, footers, starts, strict=False)
    ]
    return Cut(pieces=tuple(itertools.chain.from_iterable(cuts)), facts={"files": facts})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetTable(TableSource):
    """Such a table, as it was cut."""

    cut: Cut

    def headers(self) -> dict[str, tuple[str, ...]]:
        """Those of the first file that has rows."""
        first = self.cut.facts["files"][self.cut.pieces[0].file]
        with _opened(File(**first["file"])) as data:
            texts = dict.fromkeys(first["texts"], arrow_columns.LIKELIEST)
            return {**arrow_columns.headers(data.schema_arrow), **texts}

    def batches(self, piece: Piece) -> Iterator[TableBlock]:
        """Reads the wanted columns of a piece's row groups, a few megabytes at a time."""
        fact = self.cut.facts["files"][piece.file]
        file, texts, row = File(**fact["file"]), fact["texts"], piece.position - fact["start"]
        wanted = [column.header for column in self.schema.columns.values()]
        most = max(1, min(_BATCH_ROWS, _BATCH_BYTES * piece.extent // max(1, piece.num_bytes)))
        with _opened(file, fact["footer_bytes"], buffer_bytes=max(1, _HELD_BYTES // len(wanted))) as data:
            groups = list(range(piece.start, piece.stop))
            for batch in data.iter_batches(row_groups=groups, batch_size=most, columns=wanted, use_threads=False):
                yield TableBlock(
                    columns=_columns_of(batch, file.path, texts, self.schema, row),
                    path=file.path,
                    positions=np.arange(batch.num_rows) + (row + fact["start"]),
                    locate=lambda position: f"row {position - fact['start'] + 1:,}",
                )
                row += batch.num_rows


def compare(given: pa.Schema, path: str, texts: Mapping[str, str], schema: Schema) -> None:
    """Refuses columns that are of such types that they can never be the schema's."""
    nothing = [pa.nulls(0, field.type) for field in given]
    _columns_of(pa.record_batch(nothing, schema=given), path, texts, schema)


def _checked(file: File, texts: Mapping[str, str], schema: Schema) -> pq.FileMetaData:
    """What the footer says; that the file's columns can be the schema's is seen on the way."""
    with _opened(file) as data:
        compare(data.schema_arrow, file.path, texts, schema)
        return data.metadata


def _pieces(footer: pq.FileMetaData, most: int, *, file: int, position: int) -> Iterator[Piece]:
    """Neighbouring row groups of a file, of so many bytes together at most unless one alone has more."""
    start = extent = num_bytes = 0
    for i in range(footer.num_row_groups + 1):
        group = footer.row_group(i) if i < footer.num_row_groups else None
        if extent and (group is None or (group.num_rows and num_bytes + group.total_byte_size > most)):
            place = {"file": file, "start": start, "stop": i, "position": position}
            yield Piece(split="train", **place, extent=extent, num_bytes=num_bytes)
            start, position, extent, num_bytes = i, position + extent, 0, 0
        if group and group.num_rows:
            extent, num_bytes = extent + group.num_rows, num_bytes + group.total_byte_size


def _columns_of(
    batch: pa.RecordBatch, path: str, texts: Mapping[str, str], schema: Schema, first_row: int = 0
) -> pa.RecordBatch:
    """The columns of some rows of a file, with those that its folders' names say."""
    numbers = {column.header: column.type for column in schema.columns.values() if column.type in ("float", "int")}
    with about(path):
        for name, text in texts.items():
            value = pa.scalar(None if text in (_NULL, *schema.missing) else text, pa.large_string())
            try:
                if name in numbers and not text.lower().startswith("0x"):  # of which Arrow makes a whole number
                    value = value.cast(ARROW[numbers[name]])
            except pa.ArrowInvalid:
                raise UserError(f"{name}={text}: {text!r} is no {numbers[name]}") from None
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return arrow_columns.columns(batch, schema, lambda row, what: UserError(f"row {first_row + row + 1:,}: {what}"))


@functools.lru_cache(4)  # of the files that a process has pieces of
def _footer(file: File, num_bytes: int) -> pq.FileMetaData:
    """The footer of a file, which has so many bytes."""
    with open_random_access(file) as content:
        content.seek(file.num_bytes - num_bytes - _MAGIC_BYTES)
        return pq.read_metadata(pa.BufferReader(content.read()))


@contextlib.contextmanager
def _opened(file: File, footer_bytes: int | None = None, buffer_bytes: int = 0) -> Iterator[pq.ParquetFile]:
    """The file; whatever is wrong with it is told in a line."""
    try:
        with open_random_access(file) as content:
            yield pq.ParquetFile(
                content,
                metadata=footer_bytes and _footer(file, footer_bytes),
                buffer_size=buffer_bytes,
                pre_buffer=False,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
            )
    except pa.ArrowMemoryError:
        raise  # which is no fault of the file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and (error.errno or type(error) is not OSError):
            raise  # of the system; what Arrow finds has no number
        what = " ".join(str(error).split())
        raise UserError(f"{file.path}: damaged, encrypted or no Parquet file ({what})") from None
