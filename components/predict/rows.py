"""Rows to predict for, in batches: rows of tables, image files, or records of a converted dataset.

with open_rows(options, model) as rows:
    for kept, inputs in rows.batches:
        model.ask(rows.signature, inputs)
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from common.cli import as_list
from common.errors import UserError, about, readable, unknown
from common.manifest import FILE, Feature, Manifest
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT
from common.storage.files import read_bytes, stat_file
from common.storage.storage import File, map_in_threads
from components.convert.expressions import connect, literal, quoted
from components.convert.sources.images import IMAGE_ENDINGS
from components.convert.sources.tables import ENDINGS
from components.convert.sources.views import create_view, table_errors
from components.predict.model import Model
from components.predict.options import Options
from trainer.data import records

_IMAGES = "images"
# Endings of the files of each kind, in the order in which kinds are looked for.
_KINDS = {_IMAGES: IMAGE_ENDINGS, **ENDINGS}
# Expressions for types of DuckDB whose values it would write otherwise than a CSV file has them.
_AS_IN_CSV = {
    "TIME": "epoch_us({}) // 1000000",
    "TIMESTAMP WITH TIME ZONE": "CAST({} AS TIMESTAMP)",
}
MEMORY = "512MB"  # Limit of DuckDB, which leaves most of the memory to TensorFlow.
# Rows that the model is asked about together: N rows of the columns to write beside the answers,
# and the inputs of the model's signature, [N, ...] by name.
Batch = tuple[pa.RecordBatch, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of a source, to be read once.

    Attributes:
      count: Number of rows.
      signature: Name of the model's signature that takes them.
      batches: The rows in batches: the columns to write beside the answers, and the inputs of the
        signature, [N, ...] by name.
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
    for kind in _KINDS:
        ending = re.compile(rf"\.({'|'.join(_KINDS[kind])})(\.gz|\.zst)?$", re.IGNORECASE)
        if chosen := [file for file in files if ending.search(file.path)]:
            break
    else:
        raise UserError(
            f"--source {' '.join(paths)}: no converted dataset, and no files of {', '.join(_KINDS)}"
        )
    signature = IMAGE_BYTES if kind == _IMAGES else RAW
    if signature not in model.signatures:
        raise UserError(
            f"{model.directory} does not take {kind}; its signatures are "
            f"{', '.join(sorted(model.signatures))}"
        )
    if kind == _IMAGES:
        yield Rows(
            count=len(chosen),
            signature=signature,
            batches=_image_batches(chosen, options.batch_size),
        )
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        connect(memory_limit=MEMORY, temp_directory=folder) as connection,
        about(paths[0]),
        table_errors(),
    ):
        create_view(connection, kind, chosen, folder)
        yield _table(connection.view("source"), kind, model, options.batch_size)


def _table(source: duckdb.DuckDBPyRelation, kind: str, model: Model, size: int) -> Rows:
    types = dict(zip(source.columns, map(str, source.types), strict=True))
    for column in model.columns:
        if column.header not in types:
            raise unknown("column that the model takes:", column.header or "", types)
    # The model parses texts itself, so all columns that it takes are turned into texts.
    texts = [_text(column, types[column.header or ""], kind) for column in model.columns]

    def batches() -> Iterator[Batch]:
        for batch in source.project(f"*, {', '.join(texts)}").to_arrow_reader(size):
            yield (
                batch.select(range(len(types))),
                {
                    column.name: batch.column(i).to_numpy(zero_copy_only=False)
                    for i, column in enumerate(model.columns, len(types))
                },
            )

    return Rows(count=len(source), signature=RAW, batches=batches())


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
            # The model refuses an empty text, which stands for a file that is gone.
            contents = [content or b"" for content in map_in_threads(read_bytes, paths)]
        yield pa.RecordBatch.from_pydict({"file": paths}), {IMAGE_BYTES: np.array(contents, object)}


def _records(directory: str, model: Model, options: Options) -> Rows:
    manifest = Manifest.load(directory)
    label = manifest.label
    names = [manifest.feature(name).name for name in model.inputs(SERVING_DEFAULT)]

    def batches() -> Iterator[Batch]:
        numbers = itertools.count()
        for columns in records.batches(manifest, directory, options.split, options.batch_size):
            labels = columns[label].numpy().tolist()
            kept = {"record": [*itertools.islice(numbers, len(labels))], label: labels}
            yield pa.RecordBatch.from_pydict(kept), {name: columns[name].numpy() for name in names}

    return Rows(
        count=manifest.split(options.split).examples, signature=SERVING_DEFAULT, batches=batches()
    )
