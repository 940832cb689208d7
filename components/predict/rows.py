"""Rows to predict for, in batches: rows of tables, image files, or records of a converted dataset.

with open_rows(options, model) as rows:
    for kept, inputs in rows.batches:
        model.ask(rows.signature, inputs)
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from common.cli import as_list
from common.errors import UserError, about, readable
from common.manifest import FILE, Feature, Manifest
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT
from common.storage.files import read_bytes, stat_file
from common.storage.storage import File, map_in_threads
from components.convert.expressions import connect, literal, quoted
from components.convert.sources.images import IMAGE_SUFFIXES
from components.convert.sources.tables import ENDINGS
from components.convert.sources.views import create_view, what_is_wrong
from components.predict.model import Model
from components.predict.options import Options
from trainer.data import records

_IMAGES = "images"
# Endings of the files of each kind, in the order in which kinds are looked for.
_KINDS = {_IMAGES: tuple(suffix[1:] for suffix in IMAGE_SUFFIXES), **ENDINGS}
# Expressions for types of DuckDB whose values it would write otherwise than a CSV file has them.
_AS_IN_CSV = {
    "BLOB": "decode({})",
    "TIME": "epoch_us({}) // 1000000",
    "TIMESTAMP WITH TIME ZONE": "CAST({} AS TIMESTAMP)",
}
_MEMORY = "512MB"  # Limit of DuckDB, which leaves most of the memory to TensorFlow.
# Rows that the model is asked about together: N rows of the columns to write beside the answers,
# and the inputs of the model's signature, [N, ...] by name.
Batch = tuple[pa.RecordBatch, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of a source, to be read once.

    Attributes:
      count: Number of rows.
      signature: Name of the model's signature that takes them.
      batches: The rows in batches.
    """

    count: int
    signature: str
    batches: Iterator[Batch]


@contextlib.contextmanager
def open_rows(options: Options, model: Model) -> Iterator[Rows]:
    """Opens the rows to predict for: a converted dataset, or files of images or tables.

    A single source with a `manifest.json` is a dataset. Else the files of the first kind are read,
    of images, CSV, JSON lines and Parquet, that occurs in the sources. CSV and JSON files may be
    packed (`.gz`, `.zst`).

    Args:
      options: `source`, `split` and `batch_size` are used.
      model: Model to ask, which has to take such rows.

    Raises:
      UserError: If there are no files of a known kind, if the model does not take what they have,
        or if they cannot be read; the latter also while the rows are read.
      ConnectionError: If a store does not answer, likewise.
    """
    paths = as_list(options.source)
    if len(paths) == 1 and stat_file(f"{paths[0]}/{FILE}"):
        yield _records(paths[0], model, options)
        return
    files = options.files()
    endings = {_ending(file) for file in files}
    kind = next((kind for kind, usual in _KINDS.items() if endings.intersection(usual)), None)
    if kind is None:
        raise UserError(
            f"--source {' '.join(paths)}: no converted dataset, and no files that end in "
            f"{' '.join(itertools.chain(*_KINDS.values()))}"
        )
    files = [file for file in files if _ending(file) in _KINDS[kind]]
    if kind == _IMAGES:
        model.require(IMAGE_BYTES, "image files")
        batches = _image_batches(files, options.batch_size)
        yield Rows(count=len(files), signature=IMAGE_BYTES, batches=batches)
        return
    model.require(RAW, "rows of a table")
    with (
        tempfile.TemporaryDirectory() as folder,
        # The statistics in a Parquet file ignore NaN. With this optimizer DuckDB would conclude
        # that there is none, and drop the check for it.
        connect(
            memory_limit=_MEMORY,
            temp_directory=folder,
            disabled_optimizers="statistics_propagation",
        ) as connection,
        about(paths[0]),
    ):
        try:
            create_view(connection, kind, files, folder)
            yield _table(connection, kind, model, options.batch_size)
        except duckdb.Error as error:
            raise UserError(what_is_wrong(error)) from None


def _ending(file: File) -> str:
    return file.path.lower().removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]


def _table(connection: duckdb.DuckDBPyConnection, kind: str, model: Model, size: int) -> Rows:
    types = {name: str(type_) for name, type_, *_ in connection.sql("DESCRIBE source").fetchall()}
    for column in model.columns:
        if column.header not in types:
            raise UserError(
                f"no column {column.header!r}, which the model takes (it has {', '.join(types)})"
            )
    # The model parses texts itself, so all columns that it takes are turned into texts.
    texts = [_text(column, types[column.header or ""], kind) for column in model.columns]
    ((count,),) = connection.sql("SELECT count(*) FROM source").fetchall()
    table = connection.sql(f"SELECT *, {', '.join(texts)} FROM source").to_arrow_reader(size)

    def batches() -> Iterator[Batch]:
        for batch in table:
            yield (
                batch.select(range(len(types))),
                {
                    column.name: batch.column(i).to_numpy(zero_copy_only=False)
                    for i, column in enumerate(model.columns, len(types))
                },
            )

    return Rows(count=count, signature=RAW, batches=batches())


def _text(column: Feature, type_: str, kind: str) -> str:
    """Returns SQL for a column as texts, written as the cells of a CSV file.

    A missing cell of a CSV file becomes an empty text. Elsewhere it becomes the first text that the
    model takes for a missing value, and so does NaN.

    Args:
      column: The model's column.
      type_: Type of the column in DuckDB.
      kind: Kind of the source, such as `csv`.
    """
    value = _AS_IN_CSV.get(type_, "{}").format(quoted(column.header or ""))
    text = f"CAST({value} AS VARCHAR)"
    if type_ != "VARCHAR":
        # Whole numbers are floats where a column of pandas has gaps, and may be decimals.
        text = rf"nullif(regexp_replace({text}, '\.0+$', ''), 'nan')"
    absent = "" if kind == "csv" else (column.missing or ("",))[0]
    return f"coalesce({text}, {literal(absent)})"


def _image_batches(files: Sequence[File], size: int) -> Iterator[Batch]:
    for start in range(0, len(files), size):
        paths = [file.path for file in files[start : start + size]]
        with readable(paths[0]):
            contents = map_in_threads(read_bytes, paths)
        yield pa.RecordBatch.from_pydict({"file": paths}), {IMAGE_BYTES: np.array(contents, object)}


def _records(directory: str, model: Model, options: Options) -> Rows:
    manifest = Manifest.load(directory)
    label = manifest.label
    names = [manifest.feature(name).name for name in model.inputs(SERVING_DEFAULT)]

    def batches() -> Iterator[Batch]:
        numbers = itertools.count()
        for columns in records.batches(manifest, directory, options.split, options.batch_size):
            labels = columns[label].numpy().tolist()
            if manifest.class_names:
                labels = [manifest.class_names[each] for each in labels]
            kept = {"record": [*itertools.islice(numbers, len(labels))], label: labels}
            yield pa.RecordBatch.from_pydict(kept), {name: columns[name].numpy() for name in names}

    count = manifest.split(options.split).examples
    return Rows(count=count, signature=SERVING_DEFAULT, batches=batches())
