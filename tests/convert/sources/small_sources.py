"""A small source of every kind."""

import pathlib

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from dataset_files import make_idx, write_records
from PIL import Image

REQUIRED = {  # By dataset, paths in its source that have to be readable; "" is the source itself.
    "mnist": ("", "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    "cifar10": ("", "data_batch_3.bin"),
    "images": ("",),
    "csv": ("", "schema.yaml"),
    "parquet": ("", "schema.yaml"),
    "tfrecord": ("", "_schema.yaml"),
}
LISTED = {  # Paths that are one of many: without one it is another source.
    "images": ("lily", "rose/2.png"),
    "csv": ("b.csv",),
    "parquet": ("b.parquet",),
    "tfrecord": ("a.tfrecord", "more/b.tfrecord"),
}


def make(dataset: str, place: str, directory: pathlib.Path) -> tuple[dict[str, str], pathlib.Path]:
    """Makes a source below a directory; returns its flags, and the path at a place in it."""
    root = directory / "source"
    flags = {"dataset": dataset, "source": str(root)}
    if dataset == "mnist":
        make_idx(root, train=30, test=10, packed=False)
    elif dataset == "images":
        for value, path in enumerate(
            root / kind / f"{i}.png" for kind in ("lily", "rose") for i in range(9)
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((3, 3), value, np.uint8)).save(path)
        (root / "lily" / "notes.txt").write_text("no image")
    elif dataset == "cifar10":
        root.mkdir(parents=True)
        for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
            (root / name).write_bytes(bytes(range(10)) * 3073)
    else:
        flags["schema"] = str(_make_rows(dataset, root))
    return flags, root / place


def _make_rows(dataset: str, root: pathlib.Path) -> pathlib.Path:
    """Makes a table; returns the path of its schema."""
    root.mkdir(parents=True)
    if dataset == "tfrecord":
        for name in ("a.tfrecord", "more/b.tfrecord"):
            write_records(
                root / name, [{"a": [i], "kind": [b"xy"[i % 2 : i % 2 + 1]]} for i in range(9)]
            )
    else:
        for name in ("a.csv", "b.csv"):
            (root / name).write_text("a,kind\n" + "1,x\n2,y\n" * 9)
    if dataset == "parquet":
        for path in root.glob("*.csv"):
            pyarrow.parquet.write_table(pyarrow.csv.read_csv(path), path.with_suffix(".parquet"))
            path.unlink()
    schema = root / ("_schema.yaml" if dataset == "tfrecord" else "schema.yaml")
    schema.write_text(
        "name: t\norigin: t\ncolumns: {a: {type: int}, kind: {type: string}}\n"
        "label: {column: kind, classes: [x, y]}\nwide: [{column: a, hash_buckets: 9}]\n"
    )
    return schema
