"""Tables in CSV files, lines of JSON and Parquet files, with a schema that describes the columns.

    source = TableSource(name="csv", schema="trips.yaml")
    examples = source.open("trips.csv", opening)

All rows are staged first, in one file. Pieces are ranges of its rows.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import string
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError, readable
from common.manifest import Encoding, Feature
from common.storage.files import stat_file
from common.storage.storage import MAX_THREADS, File, FileChangedError, map_in_threads
from components.convert.expressions import connect, literal, quoted
from components.convert.hashes import content_hashes
from components.convert.source import (
    LABEL,
    Block,
    Examples,
    Opening,
    Paths,
    Piece,
    Source,
)
from components.convert.sources.unpacking import plain_path
from components.convert.splits import SPLITS, Splits

if TYPE_CHECKING:  # They are slow to import, and `--help` needs none.
    import duckdb
    import pyarrow as pa

    from components.convert.schema import Column, Input, TableSchema
    from components.convert.sources.staging import Staging

# Endings of the files of each dataset.
ENDINGS = {
    "csv": ("csv", "tsv"),
    "jsonl": ("jsonl", "ndjson"),
    "parquet": ("parquet", "parq", "pq"),
}
_TASK_ROWS = 1 << 18  # Rows that one process surveys at a time.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSource(Source):
    """A table in files: CSV, lines of JSON objects, or Parquet.

    Attributes:
      schema: Schema of the table, or path of the schema file.
      kind: Kind of the files, a key of `ENDINGS`.
      skip_bad: Largest number of wrong rows that are left out; None for 0.
    """

    name: str
    schema: Any = None
    takes: frozenset[str] = frozenset({"skip_bad"})
    kind: str = "csv"
    skip_bad: int | None = None

    def files(self, paths: Paths) -> list[File]:
        """Returns the files of the table; a folder stands for the files below it, sorted by path.

        Raises:
          UserError: If a path has no such files, a file is given twice, or lies there both packed
            and not.
          ConnectionError: If a store does not answer.
        """
        endings = ENDINGS[self.kind]
        pattern = re.compile(rf"(?is).*\.({'|'.join(endings)})(\.gz|\.zst)?")
        named = f"*.{' or *.'.join(endings)} files, or such with .gz or .zst behind"
        wanted = f"FILE..., its *.{endings[0]} files or a directory of them"
        files = self.locate_files(paths, wanted, {named: pattern})
        names = {file.path for file in files}
        for path in names:
            if (plain := re.sub(r"(?i)\.(gz|zst)$", "", path)) in names - {path}:
                raise UserError(
                    f"{path}: is packed, and {os.path.basename(plain)} beside it is not; delete "
                    "one of them"
                )
        return files

    def load_schema(self) -> TableSchema:
        """Returns the schema, read from its file if need be.

        Raises:
          UserError: If there is no schema, it cannot be used, or it has a delimiter and the files
            are no CSV files.
        """
        from components.convert.schema import TableSchema

        if self.schema is None:
            raise UserError(
                f"dataset {self.name!r} needs --schema FILE, which says what the columns are"
            )
        schema = self.schema
        if not isinstance(schema, TableSchema):
            schema = TableSchema.load(schema)
        if schema.delimiter and self.kind != "csv":
            raise UserError(
                f"{self.schema}: has a delimiter, and dataset {self.name!r} has none; leave it out"
            )
        return schema

    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Checks all rows, and stages those that the schema's filter keeps, in `train.arrow`.

        Up to `skip_bad` rows that are not what the schema says are left out.

        Raises:
          UserError: If more rows are wrong, none is left, a column has no words for its vocabulary,
            or the schema or a file cannot be used.
          ConnectionError: If a store does not answer.
          MemoryError: If a row group of a Parquet file is too large.
        """
        from components.convert.sources.staging import Staging

        schema = self.load_schema()
        files = self.files(paths)
        staged = os.path.join(opening.directory, "train.arrow")
        with Staging(schema, staged, skip_bad=self.skip_bad or 0) as staging:
            for file, path in _plain_files(files, opening.directory):
                with readable(file.path):
                    if self.kind == "csv":
                        delimiter = schema.delimiter or delimiter_of(file.path)
                        staging.add_csv(path, file.path, delimiter)
                    elif self.kind == "jsonl":
                        staging.add_json(path, file.path)
                    else:
                        staging.add_parquet(path, file.path)
        return _examples(schema, staging, staged, opening, files[0].path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableExamples(Examples):
    """Staged rows of a table.

    Attributes:
      schema: Schema of the table.
      path: Path of the staged file.
    """

    schema: TableSchema
    path: str

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Yields the rows of a piece in order, a few megabytes at a time."""
        for batch in read_staged(self.path, *piece.part).to_batches():
            yield _block(self.schema, batch)


def _plain_files(files: Sequence[File], directory: str) -> Iterator[tuple[File, str]]:
    """Yields the files, each with the path of its unpacked content on this machine.

    A file that is packed or in a bucket is copied to the directory. The copy is deleted when the
    next file is asked for.

    Raises:
      FileChangedError: If a file was changed since it was listed.
      UserError: If a file is damaged or cannot be read.
      ConnectionError: If a store does not answer.
    """

    def path_of(i: int) -> str:
        return plain_path(files[i], f"{directory}/unpacked-{i}")

    for first in range(0, len(files), MAX_THREADS):
        batch = range(first, min(first + MAX_THREADS, len(files)))
        for i, path in zip(batch, map_in_threads(path_of, batch), strict=True):
            yield files[i], path
            if path != files[i].path:
                shutil.rmtree(f"{directory}/unpacked-{i}")
            elif stat_file(path) != files[i]:  # DuckDB does not notice such a change itself.
                raise FileChangedError(path)


def delimiter_of(path: str) -> str:
    """Returns the delimiter of a CSV file by its name: a tab for `.tsv[.gz|.zst]`, else a comma."""
    return "\t" if re.search(r"(?i)\.tsv(\.gz|\.zst)?$", path) else ","


def _examples(
    schema: TableSchema, staging: Staging, path: str, opening: Opening, first_path: str
) -> TableExamples:
    """Returns the examples of a staged file, after a pass over all rows.

    The pass finds the bytes of all rows, the largest value of each column, and vocabularies. A
    `UserError` is raised if there are no rows (it names `first_path`), or a column has no words.
    """
    rows = read_staged(path)
    if not len(rows):
        raise UserError(
            f"{first_path}: no rows, in all files together, that are right and that the filter "
            "keeps"
        )
    with connect(memory_limit="1GB", temp_directory=opening.directory) as connection:
        if any(entry.vocabulary_size for entry in schema.deep + schema.wide):
            import pyarrow as pa

            is_training = opening.map(
                lambda start: _is_training(schema, path, opening.splits, start),
                range(0, len(rows), _TASK_ROWS),
            )
            rows = rows.append_column(".train", pa.array(np.concatenate(is_training)))
        connection.register("staged", rows)
        most = _most(connection, schema)
        deep, wide = (
            _encodings(connection, schema, entries) for entries in (schema.deep, schema.wide)
        )
    return TableExamples(
        name=schema.name,
        origin=schema.origin,
        pieces=opening.even_pieces({"train": len(rows)}, {"train": rows.nbytes}),
        inputs=(
            *(
                Feature(name=name, dtype="int64", indicates=column)
                for name, column in schema.indicators.items()
            ),
            *(
                Feature(
                    name=column.name,
                    dtype=column.dtype,
                    unit=column.unit,
                    default=column.default,
                    missing=schema.missing,
                    type=column.type,
                    header=column.header,
                )
                for column in schema.stored
            ),
        ),
        task=schema.label.task,
        class_names=schema.label.classes,
        targets=tuple(schema.label.targets),
        arguments={"schema": schema.content},
        most=most,
        deep=deep,
        wide=wide,
        left_out=staging.left_out,
        skipped=tuple(staging.skipped),
        schema=schema,
        path=path,
    )


def _is_training(schema: TableSchema, path: str, splits: Splits, start: int) -> np.ndarray:
    """Returns which staged rows are for training, bool [rows], of `_TASK_ROWS` from `start` on.

    There are fewer at the end.
    """
    parts = []
    for batch in read_staged(path, start, start + _TASK_ROWS).to_batches():
        block = _block(schema, batch)
        inputs = {name: values for name, values in block.columns.items() if name != LABEL}
        keys = content_hashes(len(batch), inputs) if block.keys is None else block.keys
        places = splits.assign(keys, native="train", natives={"train"}, assigned=block.assigned)
        parts.append(places == SPLITS.index("train"))
    return np.concatenate(parts)


def _filled(column: Column) -> str:
    """Returns SQL of a staged column, with its default in place of missing values."""
    if column.default is None:
        return quoted(column.name)
    return f"coalesce({quoted(column.name)}, {literal(str(column.default))})"


def _most(connection: duckdb.DuckDBPyConnection, schema: TableSchema) -> dict[str, int]:
    """Returns the largest values of columns, as in `Examples.most`."""
    most = {
        column.name: f"max(strlen({_filled(column)}))"
        if column.dtype == "string"
        else f"if(min({_filled(column)}) < 0, 1::HUGEINT << 63, max({_filled(column)}))"
        for column in schema.stored
        if column.dtype != "float32"
    }
    query = f"SELECT {', '.join(['count(*)', *most.values()])} FROM staged"
    ((_, *largest),) = connection.sql(query).fetchall()
    return {**dict(zip(most, largest, strict=True)), **dict.fromkeys(schema.indicators, 1)}


def words(text: str) -> str:
    """Returns SQL of the words of a text.

    Words are those of `keras.layers.TextVectorization` by default: ASCII letters become lower case,
    ASCII punctuation is removed, and words are separated by ASCII white space.

    Args:
      text: SQL of the text.
    """
    removed = literal(string.ascii_uppercase + string.punctuation)
    plain = f"translate({text}, {removed}, '{string.ascii_lowercase}')"
    split = f"regexp_split_to_array({plain}, '[ \t\n\v\f\r]+')"
    return f"list_filter({split}, lambda word: word <> '')"


def _encodings(
    connection: duckdb.DuckDBPyConnection, schema: TableSchema, entries: Sequence[Input]
) -> tuple[Encoding, ...]:
    """Returns the manifest's encodings of inputs, then of the indicators of their columns.

    An indicator is a feature that is 1 where the column has no value, else 0. A vocabulary has the
    most frequent values of training rows, equally frequent ones in order. If a column has no words
    at all, a `UserError` is raised.

    Args:
      connection: DuckDB with the staged rows, and `.train`, which of them are for training.
      schema: Schema of the table.
      entries: Inputs of one part of the model, `schema.deep` or `schema.wide`.
    """
    encodings, taken = [], set[str]()
    for entry in entries:
        encoding = entry.encoding
        taken |= {*encoding.columns}
        if entry.vocabulary_size:
            value = _filled(schema.columns[encoding.columns[0]])
            value = f"unnest({words(value)})" if entry.words else value
            counted = connection.sql(
                f'SELECT value FROM (SELECT {value} AS value FROM staged WHERE ".train") '
                f"GROUP BY value ORDER BY count(*) DESC, value LIMIT {entry.vocabulary_size}"
            ).fetchall()
            if entry.words and not counted:
                raise UserError(f"column {entry.column!r} has no words in the training split")
            encoding = dataclasses.replace(encoding, vocabulary=tuple(v for (v,) in counted))
        encodings.append(encoding)
    indicators = (name for name, column in schema.indicators.items() if column in taken)
    return (*encodings, *(Encoding(kind="numeric", columns=(name,)) for name in indicators))


def read_staged(path: str, start: int = 0, stop: int | None = None) -> pa.Table:
    """Returns the rows from `start` up to `stop` of a staged file, by default all.

    The file is mapped into memory, so only what is used of it is read.
    """
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(path)).read_all()[start:stop]


def _block(schema: TableSchema, batch: pa.RecordBatch) -> Block:
    columns, missing = {}, {}
    for column in schema.stored:
        array = batch[column.name]
        if column.default is not None:
            missing[column.name] = array.is_null().to_numpy(zero_copy_only=False)
            array = array.fill_null(column.default)
        columns[column.name] = (
            array.cast("large_binary") if column.dtype == "string" else array.to_numpy()
        )
    columns |= {
        name: missing[column].astype(np.int64) for name, column in schema.indicators.items()
    }
    labels = [batch[name].to_numpy() for name in batch.schema.names if name.startswith(f"{LABEL}.")]
    columns[LABEL] = labels[0] if len(labels) == 1 else np.stack(labels, axis=1)
    # The schema either assigns rows by their values, or draws rows with equal values together.
    rule, keys, assigned = schema.split, None, {}
    if rule and rule.starts:
        assigned = {split: columns[rule.column] >= start for split, start in rule.starts.items()}
    elif rule:
        keys = content_hashes(len(batch), {rule.column: columns[rule.column]})
    return Block(columns=columns, missing=missing, keys=keys, assigned=assigned)
