"""Rows to predict for, in batches: rows of tables, image files, or records of a converted dataset.

with open_rows(options, model) as rows:
    for batch in rows.batches(1024):
        batch.kept, batch.inputs
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import tensorflow as tf

from common.cli import as_list
from common.errors import UserError, about, readable, unknown
from common.manifest import FILE, Feature, Manifest
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT
from common.storage.files import open_files, stat_file
from components.convert.expressions import connect, literal, quoted
from components.convert.sources.images import IMAGE_SUFFIXES
from components.convert.sources.registry import find_source
from components.convert.sources.tables import ENDINGS
from components.convert.sources.views import create_view, what_is_wrong
from components.predict.model import Model
from components.predict.options import Options
from trainer.data import records

# Expressions for types of DuckDB whose values it would write otherwise than a CSV file has them.
_AS_IN_CSV = {
    "BLOB": "decode({})",
    "TIME": "epoch_us({}) // 1000000",
    "TIMESTAMP WITH TIME ZONE": "CAST({} AS TIMESTAMP)",
}
_MEMORY = "512MB"  # Limit of DuckDB, which leaves most of the memory to TensorFlow.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows that the model is asked about together.

    Attributes:
      kept: Columns to write beside the answers, N rows.
      inputs: Inputs of the model's signature, [N, ...] by name.
    """

    kept: pa.RecordBatch
    inputs: Mapping[str, tf.Tensor]

    def __getitem__(self, rows: np.ndarray) -> Batch:
        """Returns the batch of some of its rows, by their indices, int64 [M]."""
        inputs = {name: tf.gather(values, rows) for name, values in self.inputs.items()}
        return Batch(kept=self.kept.take(pa.array(rows)), inputs=inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of a source, to be read once.

    Attributes:
      count: Number of rows.
      signature: Name of the model's signature that takes them.
      batches: Function from a number of rows to an iterator over batches of at most so many.
    """

    count: int
    signature: str
    batches: Callable[[int], Iterator[Batch]]


@contextlib.contextmanager
def open_rows(options: Options, model: Model) -> Iterator[Rows]:
    """Opens the rows to predict for: a converted dataset, or files of images or tables.

    A single source with a `manifest.json` is a dataset. Else, if any file is an image, only images
    are read; else the files of the first kind of table, of CSV, JSON lines and Parquet, that occurs
    in the sources. CSV and JSON files may be packed (`.gz`, `.zst`).

    Args:
      options: `source`, `split` and `keep` are used.
      model: Model to ask, which has to take such rows.

    Raises:
      UserError: If there are no files of a known kind, if the model does not take what they have,
        if a column of `keep` is missing, or if they cannot be read; the latter also while the rows
        are read.
      ConnectionError: If a store does not answer, likewise.
    """
    paths = as_list(options.source)
    if len(paths) == 1 and stat_file(f"{paths[0]}/{FILE}"):
        yield _records(paths[0], model, options.split)
        return
    files = options.files()
    names = [file.path.lower().removesuffix(".gz").removesuffix(".zst") for file in files]
    if images := [
        file for file, name in zip(files, names, strict=True) if name.endswith(IMAGE_SUFFIXES)
    ]:
        yield _images(images, model)
        return
    endings = {name.rpartition(".")[2] for name in names}
    dataset = next((kind for kind, usual in ENDINGS.items() if endings & {*usual}), None)
    if dataset is None:
        raise UserError(
            f"--source {' '.join(paths)}: no converted dataset, no PNG or JPEG files, and none "
            f"that end in {', '.join(itertools.chain(*ENDINGS.values()))}"
        )
    model.require(RAW, f"rows of a table, as in {files[0].path}")
    # The statistics in a Parquet file ignore NaN. With this optimizer DuckDB would conclude that
    # there is none, and drop the check for it.
    settings = {"memory_limit": _MEMORY, "disabled_optimizers": "statistics_propagation"}
    with (
        connect(**settings) as connection,
        tempfile.TemporaryDirectory() as folder,
        about(paths[0]),
    ):
        try:
            connection.execute(f"SET temp_directory = '{folder}'")
            files = find_source(dataset, schema="-").files([*paths] if len(paths) > 1 else paths[0])
            create_view(connection, dataset, files, folder)
            yield _table(connection, dataset, model, as_list(options.keep))
        except duckdb.Error as error:
            raise UserError(what_is_wrong(error)) from None


def _table(
    connection: duckdb.DuckDBPyConnection, dataset: str, model: Model, keep: Sequence[str]
) -> Rows:
    types = {name: str(kind) for name, kind, *_ in connection.sql("DESCRIBE source").fetchall()}
    for column in model.columns:
        if column.header not in types:
            raise UserError(
                f"no column {column.header!r}, which the model takes (it has {', '.join(types)})"
            )
    for name in keep:
        if name not in types:
            raise unknown("column", name, types)
    # The model parses texts itself, so all columns that it takes are turned into texts.
    kept = [*(keep or types)]
    texts = [_text(column, types[column.header], dataset) for column in model.columns]
    query = f"SELECT {', '.join([*map(quoted, kept), *texts])} FROM source"

    def batches(size: int) -> Iterator[Batch]:
        for batch in connection.sql(query).to_arrow_reader(size):
            arrays = batch.columns[len(kept) :]
            inputs = {
                column.name: tf.constant(array.to_numpy(zero_copy_only=False))
                for column, array in zip(model.columns, arrays, strict=True)
            }
            yield Batch(kept=batch.select(range(len(kept))), inputs=inputs)

    ((count,),) = connection.sql("SELECT count(*) FROM source").fetchall()
    return Rows(count=count, signature=RAW, batches=batches)


def _text(column: Feature, kind: str, dataset: str) -> str:
    """Returns SQL for a column as texts, written as the cells of a CSV file.

    A missing cell of a CSV file becomes an empty text. Elsewhere it becomes the first text that the
    model takes for a missing value, unless the empty text is one of them.

    Args:
      column: The model's column.
      kind: Type of the column in DuckDB.
      dataset: Kind of the source, such as `csv`.
    """
    x, missing = quoted(column.header or ""), column.missing or ()
    if kind in ("FLOAT", "DOUBLE"):
        x = f"if(isnan({x}), NULL, {x})"
    text = f"CAST({_AS_IN_CSV.get(kind, '{}').format(x)} AS VARCHAR)"
    if column.type == "int" and kind.startswith(("FLOAT", "DOUBLE", "DECIMAL")):
        text = (
            f"CASE WHEN {x} = trunc({x}) THEN CAST(CAST({x} AS HUGEINT) AS VARCHAR) ELSE {text} END"
        )
    absent = "" if dataset == "csv" or not missing or "" in missing else missing[0]
    return f"coalesce({text}, {literal(absent)})"


def _images(files: Sequence[Any], model: Model) -> Rows:
    model.require(IMAGE_BYTES, f"image files, as {files[0].path}")

    def batches(size: int) -> Iterator[Batch]:
        contents = open_files(files)
        for start in range(0, len(files), size):
            paths = [file.path for file in files[start : start + size]]
            data = []
            for path, content in zip(paths, contents, strict=False):
                with readable(path), content:
                    data.append(content.read())
            inputs = {IMAGE_BYTES: tf.constant(data)}
            yield Batch(kept=pa.RecordBatch.from_pydict({"file": paths}), inputs=inputs)

    return Rows(count=len(files), signature=IMAGE_BYTES, batches=batches)


def _records(directory: str, model: Model, split: str) -> Rows:
    manifest = Manifest.load(directory)
    names = {feature.name for feature in manifest.inputs}
    model.require(
        SERVING_DEFAULT, f"features {', '.join(sorted(names))}, as dataset {directory} has", names
    )

    def batches(size: int) -> Iterator[Batch]:
        start = 0
        for columns in records.batches(manifest, directory, split, size):
            labels = columns[manifest.label].numpy()
            kept = {
                "record": np.arange(start, start + len(labels)),
                manifest.label: labels.tolist(),
            }
            if manifest.class_names:
                kept[manifest.label] = [manifest.class_names[label] for label in labels]
            start += len(labels)
            yield Batch(
                kept=pa.RecordBatch.from_pydict(kept),
                inputs={name: columns[name] for name in names},
            )

    return Rows(count=manifest.split(split).examples, signature=SERVING_DEFAULT, batches=batches)
