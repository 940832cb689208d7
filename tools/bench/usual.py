"""The usual loop over `tf.train.Example` into one file: of images, or of a CSV file's rows.

The rows are read as people do. pandas and DuckDB are none of the project's dependencies; `rows`
imports the one it is asked for.
"""

import csv
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

_BATCH = 10_000  # rows that a reader gives at once


def writer(images, labels, root):
    """A lap that writes a new file."""
    path = root / "usual.tfrecord"

    def lap():
        path.unlink(missing_ok=True)
        with tf.io.TFRecordWriter(str(path)) as file:
            for image, label in zip(images, labels, strict=True):
                file.write(_serialized({"image": _text(image.tobytes()), "label": _integer(label)}))
        return len(labels)

    return lap


def rows(reader, trips, kinds, root, count):
    """A lap that writes the first rows of a CSV file, given the kind of each column.

    A missing value is zero or empty.
    """
    path = root / f"{reader}.tfrecord"
    read = {"csv": _by_csv, "pandas": _by_pandas, "duckdb": _by_duckdb}[reader]
    make = {"int": _integer, "float": _number, "string": _text}
    makers = {name: make[kind] for name, kind in kinds.items()}

    def lap():
        path.unlink(missing_ok=True)
        with tf.io.TFRecordWriter(os.fspath(path)) as file:
            for values in read(trips, kinds, count):
                pairs = zip(makers.items(), values, strict=True)
                file.write(_serialized({name: maker(value) for (name, maker), value in pairs}))
        return count

    return lap


Rows = Iterator[Sequence[Any]]


def _by_csv(trips, kinds, count):
    with open(trips, newline="") as file:
        for row in itertools.islice(csv.DictReader(file), count):
            yield [row[name] for name in kinds]


def _by_pandas(trips, kinds, count):
    import pandas

    missing = {name: "" if kind == "string" else 0 for name, kind in kinds.items()}
    for frame in pandas.read_csv(trips, usecols=[*kinds], nrows=count, chunksize=_BATCH):
        yield from frame[[*kinds]].fillna(missing).itertuples(index=False, name=None)


def _by_duckdb(trips, kinds, count):
    import duckdb

    query = f"SELECT {', '.join(kinds)} FROM read_csv('{trips}') LIMIT {count}"
    result = duckdb.execute(query)
    while batch := result.fetchmany(_BATCH):
        yield from batch


def _serialized(feature):
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _integer(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value or 0)]))


def _number(value):
    return tf.train.Feature(float_list=tf.train.FloatList(value=[float(value or 0)]))


def _text(value):
    value = value if isinstance(value, bytes) else (value or "").encode()
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
