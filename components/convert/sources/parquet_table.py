"""The rows of Parquet files: footers alone are read to cut them, and a row group's pages are unpacked by one reader only."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.convert.pieces import Cut, Piece
from components.convert.tables import arrow_columns
from components.convert.tables.schema import Schema
from components.convert.tables.table_block import ARROW, TableBlock
from components.convert.tables.table_source import TableSource
from components.files.listing import File
from components.files.reading import opened
from components.files.store import parallel
from trainer.base.errors import UserError, about

_NULL = "__HIVE_DEFAULT_PARTITION__"
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 4 << 20
_HELD_BYTES = 64 << 20  # of row groups whose columns are read whole; of larger ones some pages at a time
_BUFFER_BYTES = 1 << 20


def cut(found: Sequence[tuple[File, Mapping[str, str]]], schema: Schema, *, pieces: int, piece_bytes: int) -> Cut:
    """Puts neighbouring row groups of files together; of each file there are the columns that its folders' names say."""
    groups = parallel(lambda file: _row_groups(*file, schema), found)
    rows = [sum(group.num_rows for group in of_file) for of_file in groups]
    if not any(rows):
        raise UserError(f"{found[0][0].path}{f' and {len(found) - 1} more' * (len(found) > 1)}: no rows")
    most = min(piece_bytes, sum(group.total_byte_size for of_file in groups for group in of_file) // pieces)
    starts = list(itertools.accumulate(rows, initial=0))
    cuts = (_pieces(groups[i], most, file=i, position=starts[i]) for i in range(len(found)))
    facts = [
        {"file": dataclasses.asdict(f), "texts": texts, "start": s}
        for (f, texts), s in zip(found, starts, strict=False)
    ]
    return Cut(pieces=tuple(itertools.chain.from_iterable(cuts)), facts={"files": facts})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetTable(TableSource):
    """Such a table, as it was cut."""

    cut: Cut

    def headers(self) -> dict[str, tuple[str, ...]]:
        """Those of the first file."""
        first = self.cut.facts["files"][0]
        with _parquet(File(**first["file"])) as data:
            texts = dict.fromkeys(first["texts"], arrow_columns.LIKELIEST)
            return {**arrow_columns.headers(data.schema_arrow), **texts}

    def batches(self, piece: Piece) -> Iterator[TableBlock]:
        """Reads the wanted columns of a piece's row groups, a few megabytes at a time."""
        file, texts, start = (self.cut.facts["files"][piece.file][fact] for fact in ("file", "texts", "start"))
        headers = [column.header for column in self.schema.columns.values()]
        row = piece.position - start
        with _parquet(File(**file), piece) as data:
            groups = [data.metadata.row_group(i) for i in range(data.num_row_groups)]
            taken = [i for i, group in enumerate(groups) if piece.start <= _range(group).start < piece.stop]
            for batch in data.iter_batches(
                max(1, min(_BATCH_ROWS, _BATCH_BYTES * piece.extent // max(1, piece.num_bytes))),
                row_groups=taken,
                columns=[*headers, *(header.split("[")[0] for header in headers)],
                use_threads=False,
            ):
                yield TableBlock(
                    columns=_columns_of(batch, file["path"], texts, self.schema, row),
                    path=file["path"],
                    positions=np.arange(row + start, row + start + batch.num_rows),
                    locate=lambda position: f"row {position - start + 1:,}",
                )
                row += batch.num_rows


def _row_groups(file: File, texts: Mapping[str, str], schema: Schema) -> list[pq.RowGroupMetaData]:
    """What the footer says of each; that the file's columns can be the schema's is seen on the way."""
    with _parquet(file) as data:
        nothing = [pa.nulls(0, field.type) for field in data.schema_arrow]
        _columns_of(pa.record_batch(nothing, schema=data.schema_arrow), file.path, texts, schema)
        return [data.metadata.row_group(i) for i in range(data.num_row_groups)]


def _pieces(groups: list[pq.RowGroupMetaData], most: int, *, file: int, position: int) -> Iterator[Piece]:
    """Neighbours of a file, of so many bytes together at most unless one alone has more."""
    held, num_bytes = [], 0
    for group in [*(group for group in groups if group.num_rows), None]:
        if held and (group is None or num_bytes + group.total_byte_size > most):
            place = {"file": file, "start": _range(held[0]).start, "stop": _range(held[-1]).stop}
            extent = sum(one.num_rows for one in held)
            yield Piece(split="train", **place, position=position, extent=extent, num_bytes=num_bytes)
            position, held, num_bytes = position + extent, [], 0
        if group:
            held.append(group)
            num_bytes += group.total_byte_size


def _range(group: pq.RowGroupMetaData) -> range:
    """The bytes of a row group in its file."""
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return range(min(starts), max(start + c.total_compressed_size for start, c in zip(starts, columns, strict=True)))


def _columns_of(
    batch: pa.RecordBatch, path: str, texts: Mapping[str, str], schema: Schema, first_row: int = 0
) -> pa.RecordBatch:
    """The columns of some rows of a file, with those that its folders' names say."""
    numbers = {column.header: column.type for column in schema.columns.values() if column.type in ("float", "int")}
    with about(path):
        for name, text in texts.items():
            value = pa.scalar(None if text == _NULL else text, pa.large_string())
            try:
                value = value.cast(ARROW[numbers[name]]) if name in numbers else value
            except pa.ArrowInvalid:
                raise UserError(f"{name}={text}: {text!r} is no {numbers[name]}") from None
            batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return arrow_columns.columns(batch, schema, lambda row, what: UserError(f"row {first_row + row + 1:,}: {what}"))


@contextlib.contextmanager
def _parquet(file: File, piece: Piece | None = None) -> Iterator[pq.ParquetFile]:
    """The file, of which a piece is to be read, or the footer; whatever is wrong with it is told in a line."""
    large = piece is not None and piece.num_bytes > _HELD_BYTES
    try:
        with opened(file, stop=piece.stop if piece else 0) as data:
            yield pq.ParquetFile(
                data,
                buffer_size=_BUFFER_BYTES if large else 0,
                pre_buffer=not large,  # the wanted columns' bytes, and no others
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
