"""The usual loop over `tf.train.Example` into one file: of images, or of a CSV file's rows by the readers that people take.

pandas and DuckDB are none of the project's dependencies; `rows` imports the one it is asked for.
"""

import csv
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def example(image: bytes, label: int) -> bytes:
    """An image as a serialized `tf.train.Example`."""
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def writer(images: np.ndarray, labels: np.ndarray, root: pathlib.Path) -> Callable[[], float]:
    """A lap that writes a new file."""
    path = root / "usual.tfrecord"

    def lap() -> float:
        path.unlink(missing_ok=True)
        with tf.io.TFRecordWriter(str(path)) as file:
            for image, label in zip(images, labels, strict=True):
                file.write(example(image.tobytes(), label))
        return len(labels)

    return lap


def rows(
    reader: str, trips: pathlib.Path, kinds: Mapping[str, str], root: pathlib.Path, count: int
) -> Callable[[], float]:
    """A lap that writes the first rows of a CSV file, given the kind of each column; a missing value is zero or empty."""
    path = root / f"{reader}.tfrecord"
    read = {"csv": _by_csv, "pandas": _by_pandas, "duckdb": _by_duckdb}[reader](trips, kinds, count)
    make = {"int": _integer, "float": _number, "string": _text}

    def lap() -> float:
        path.unlink(missing_ok=True)
        with tf.io.TFRecordWriter(os.fspath(path)) as file:
            for values in read():
                feature = {
                    name: make[kind](value)
                    for (name, kind), value in zip(kinds.items(), values, strict=True)
                }
                file.write(
                    tf.train.Example(
                        features=tf.train.Features(feature=feature)
                    ).SerializeToString()
                )
        return count

    return lap


_Read = Callable[[], Iterator[Sequence[Any]]]
_BATCH = 10_000  # rows that a reader gives at once


def _by_csv(trips: pathlib.Path, kinds: Mapping[str, str], count: int) -> _Read:
    def read() -> Iterator[Sequence[Any]]:
        with open(trips, newline="") as file:
            yield from (
                [row[name] for name in kinds]
                for row in itertools.islice(csv.DictReader(file), count)
            )

    return read


def _by_pandas(trips: pathlib.Path, kinds: Mapping[str, str], count: int) -> _Read:
    import pandas

    missing = {name: "" if kind == "string" else 0 for name, kind in kinds.items()}

    def read() -> Iterator[Sequence[Any]]:
        for frame in pandas.read_csv(trips, usecols=[*kinds], nrows=count, chunksize=_BATCH):
            yield from frame[[*kinds]].fillna(missing).itertuples(index=False, name=None)

    return read


def _by_duckdb(trips: pathlib.Path, kinds: Mapping[str, str], count: int) -> _Read:
    import duckdb

    query = f"SELECT {', '.join(kinds)} FROM read_csv('{trips}') LIMIT {count}"

    def read() -> Iterator[Sequence[Any]]:
        result = duckdb.execute(query)
        while batch := result.fetchmany(_BATCH):
            yield from batch

    return read


def _integer(value: Any) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value or 0)]))


def _number(value: Any) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=[float(value or 0)]))


def _text(value: Any) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[(value or "").encode()]))
