"""A small source of every kind."""

import pathlib

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from PIL import Image


def cifar(root: pathlib.Path) -> dict[str, pathlib.Path]:
    root.mkdir(parents=True)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (root / name).write_bytes(bytes(range(10)) * 3073)
    return {"source": root}


def images(root: pathlib.Path) -> dict[str, pathlib.Path]:
    for value, path in enumerate(root / kind / f"{i}.png" for kind in ("lily", "rose") for i in range(9)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((3, 3), value, np.uint8)).save(path)
    (root / "lily" / "notes.txt").write_text("no image")
    return {"source": root}


def rows(root: pathlib.Path) -> dict[str, pathlib.Path]:
    root.mkdir(parents=True)
    for name in ("a.csv", "b.csv"):
        (root / name).write_text("a,kind\n" + "1,x\n2,y\n" * 9)
    (root / "schema.yaml").write_text(
        "name: t\norigin: t\ncolumns: {a: {type: int}, kind: {type: string}}\n"
        "label: {column: kind, classes: [x, y]}\nwide: [{column: a, hash_buckets: 9}]\n"
    )
    return {"source": root, "schema": root / "schema.yaml"}


def tables(root: pathlib.Path) -> dict[str, pathlib.Path]:
    paths = rows(root)
    for path in root.glob("*.csv"):
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(path), path.with_suffix(".parquet"))
        path.unlink()
    return paths


SOURCES = {  # By dataset what makes one, and paths in it to break, "" for the source itself.
    "mnist": (None, ("", "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte")),
    "cifar10": (cifar, ("", "data_batch_3.bin")),
    "images": (images, ("", "lily", "rose/2.png")),
    "csv": (rows, ("", "b.csv", "schema.yaml")),
    "parquet": (tables, ("", "b.parquet", "schema.yaml")),
    "tfrecord": (None, ("", "more", "a.tfrecord", "more/b.tfrecord", "_schema.yaml")),
}
