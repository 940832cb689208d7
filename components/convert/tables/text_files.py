"""Tables in text files, CSV or lines of JSON: cut where records end, and read a piece at a time.

    found = cut(files, schema, json=False, pieces=8, piece_bytes=64 << 20)
    table = TextTable.of(schema, cut=found, json=False)

A piece is some of a file's bytes, or all of a packed file: to read the end of one is to unpack all of it.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa

from common.errors import UserError, about, first_line, readable
from common.machine import usable_cores
from common.storage.files import open_file
from common.storage.storage import File
from components.convert.pieces import Cut, Piece
from components.convert.tables import arrow_columns
from components.convert.tables.csv_parser import CsvParser, header
from components.convert.tables.json_parser import JsonParser, headers
from components.convert.tables.quoting import Chunk, chunks
from components.convert.tables.schema import Schema
from components.convert.tables.table_block import ARROW, TableBlock
from components.convert.tables.table_source import TableSource
from components.convert.writing import workers
from components.convert.writing.progress import track

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}  # by what they begin with
_SCANNED_BYTES = 1 << 18  # at once: they stay in the cache of a core
_PROCESS_BYTES = 1 << 26  # to scan, that make up for the start of a process
_READ_SINGLY = 32  # records, among which is one that is wrong


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTable(TableSource):
    """Such a table, as it was cut."""

    cut: Cut
    json: bool

    def headers(self) -> dict[str, tuple[str, ...]]:
        """Those of the first file that has rows; of JSON, those in its first lines."""
        fact = self.cut.facts["files"][self.cut.pieces[0].file]
        if not self.json:
            return dict.fromkeys(fact["header"], arrow_columns.LIKELIEST)
        file = File(**fact["file"])
        with open_file(file) as raw, about(file.path):
            return headers(next(chunks(file.path, _unpacked(raw, fact["codec"]), None)))

    def batches(self, piece: Piece) -> Iterator[TableBlock]:
        """Parses the records of a piece, some megabytes at a time."""
        fact, line = self.cut.facts["files"][piece.file], self.cut.facts["lines"][self.cut.pieces.index(piece)]
        file, codec, place = File(**fact["file"]), fact["codec"], {"start": piece.start, "stop": piece.stop}
        path, delimiter, position = file.path, _delimiter(file, self.schema, json=self.json), piece.position
        if self.json:
            parser = JsonParser(self.schema)
        else:
            parser = CsvParser(schema=self.schema, names=header(fact["header"], self.schema, delimiter))
        with readable(path), open_file(file, *((0, file.num_bytes) if codec else place.values())) as raw:
            for chunk in chunks(path, _unpacked(raw, codec, skip=piece.start), delimiter, line=line, **place):
                block = self._block(path, parser, chunk, position)
                position += len(block.positions) + len(block.skipped)
                yield block

    def _block(self, path: str, parser: CsvParser | JsonParser, chunk: Chunk, position: int) -> TableBlock:
        def locate(position_of_row: int) -> str:
            return f"line {chunk.line_of(int(chunk.starts[position_of_row - position]))}"

        bad, count = {}, len(chunk.starts)
        nothing = {name: pa.array([], ARROW[column.type]) for name, column in self.schema.columns.items()}
        columns = pa.RecordBatch.from_pydict(nothing)
        try:
            columns = parser.columns(chunk) if count else columns
        except pa.ArrowMemoryError:
            raise  # which is no fault of the file
        except (pa.ArrowException, UserError) as error:
            for row, fault in _faults(parser, chunk):
                bad[row] = f"{path}: {locate(position + row)}: {fault}"
                if len(bad) > self.skip_bad:
                    raise self.too_many(bad[row]) from None
            if not bad:
                raise UserError(f"{path}: {first_line(error)}") from None
            columns = parser.columns(chunk.without(bad)) if len(bad) < count else columns
        rows = np.delete(np.arange(count), [*bad])
        return TableBlock(
            columns=columns, path=path, positions=position + rows, locate=locate, skipped=tuple(bad.values())
        )


def _faults(parser: CsvParser | JsonParser, chunk: Chunk) -> Iterator[tuple[int, str]]:
    """As the parser's, of records that it could not parse; only those near one that is wrong are read one by one, which takes long."""
    if (count := len(chunk.starts)) <= _READ_SINGLY:
        yield from parser.faults(chunk)
        return
    for first, half in zip((0, count // 2), chunk.halves(), strict=True):
        try:
            parser.columns(half)
        except pa.ArrowMemoryError:
            raise
        except (pa.ArrowException, UserError):
            yield from ((first + row, fault) for row, fault in _faults(parser, half))


def cut(files: Sequence[File], schema: Schema, *, json: bool, pieces: int, piece_bytes: int) -> Cut:
    """Scans files for where records end, and for what could hide that, and cuts them there into parts as equal as can be."""
    total, started, more = sum(f.num_bytes for f in files), time.monotonic(), f" and {len(files) - 1} more"
    more, count = more * (len(files) > 1), max(pieces, -(-total // piece_bytes))
    before = [0, *itertools.accumulate(f.num_bytes for f in files)]

    def scan(i: int, advance: workers.Advance) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
        most = files[i].num_bytes
        due = [0, *(at for k in range(1, count) if 0 < (at := k * total // count - before[i]) < most)]
        return _scan(files[i], schema, due, advance, json=json)

    with track(f"scanning {files[0].path}{more}", total, "bytes") as advance:
        processes = min(usable_cores(), 1 + total // _PROCESS_BYTES)
        scanned = dict(workers.run(scan, range(len(files)), processes=processes, advance=advance))
    found, lines, facts, position = [], [], [], 0
    for i, file in enumerate(files):
        fact, parts = scanned[i]
        for (start, line, row), (stop, _, end_row) in itertools.pairwise(parts):
            num_bytes = file.num_bytes * (stop - start) // parts[-1][0]
            place = {"split": "train", "file": i, "start": start, "stop": stop, "num_bytes": num_bytes}
            found.append(Piece(**place, position=position + row, extent=end_row - row))
            lines.append(line)
        facts.append({"file": dataclasses.asdict(file), **fact})
        position += parts[-1][2]
    if (seconds := time.monotonic() - started) > 1:
        rate = f"{total:,} bytes in {seconds:.1f} s, {total / seconds:,.0f} bytes/s"
        print(f"scanned for the ends of records: {rate}", flush=True)
    if not found:
        raise UserError(f"{files[0].path}{more}: {'no rows' if json else 'a header and no rows'}")
    return Cut(pieces=tuple(found), facts={"files": facts, "lines": lines})


def _scan(
    file: File, schema: Schema, due: Sequence[int], advance: Callable[[int], object], *, json: bool
) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
    """What is known of a file, and where its parts begin and the last ends: byte, line, and records before.

    Each part begins with the first record that starts where it is due, or later; a packed file has one.
    """
    path, found, parts, rows, at, stop = file.path, [], [], 0, 0, 0
    delimiter = _delimiter(file, schema, json=json)
    with readable(path), open_file(file) as raw:
        magic = raw.peek(max(map(len, _PACKED)))
        codec = next((codec for begin, codec in _PACKED.items() if magic.startswith(begin)), None)
        due = list(due[:1] if codec else due)[::-1]
        for chunk in chunks(path, _unpacked(raw, codec), delimiter, block_bytes=_SCANNED_BYTES):
            if not (json or found):
                if not (found := next(chunk.rows(), [])):
                    continue
                with about(path):
                    header(found, schema, delimiter)
                chunk = chunk.without_first()
            starts, stop = chunk.starts, chunk.start + len(chunk.text)
            while due and (i := int(np.searchsorted(starts, due[-1] - chunk.start))) < len(starts):
                begin = chunk.start + int(starts[i]), chunk.line_of(int(starts[i])), rows + i
                parts += [begin] * (not parts or parts[-1][0] < begin[0])
                due.pop()
            rows += len(starts)
            advance(-at + (at := raw.tell()))
    if not (json or found):
        raise UserError(f"{path}: empty; it needs a header")
    return {"codec": codec, "header": found}, [*parts, (stop, 0, rows)]


def _delimiter(file: File, schema: Schema, *, json: bool) -> str | None:
    name = file.path.lower().removesuffix(".gz").removesuffix(".zst")
    return None if json else schema.delimiter or ("\t" if name.endswith(".tsv") else ",")


def _unpacked(raw: IO[bytes], codec: str | None, *, skip: int = 0) -> IO[bytes]:
    """The content of a file; of a packed one without its first bytes."""
    if codec is None:
        return raw
    content = pa.CompressedInputStream(raw, codec)
    content.read(skip)
    return content
