"""A small source of every kind."""

import io
import pathlib

import numpy as np
import pyarrow.csv
import pyarrow.parquet
from dataset_files import encode_image, make_idx, write_files, write_records

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
ROWS = "a,kind\n" + "1,x\n2,y\n" * 9
SCHEMA = """
name: t
origin: t
columns: {a: {type: int}, kind: {type: string}}
label: {column: kind, classes: [x, y]}
wide: [{column: a, hash_buckets: 9}]
"""


def make(dataset: str, place: str, directory: pathlib.Path) -> tuple[dict[str, str], pathlib.Path]:
    """Makes a source below a directory; returns its flags, and the path at a place in it."""
    root = directory / "source"
    flags = {"dataset": dataset, "source": str(root)}
    if dataset in ("csv", "parquet", "tfrecord"):
        schema = "_schema.yaml" if dataset == "tfrecord" else "schema.yaml"
        write_files(root, {schema: SCHEMA})
        flags["schema"] = str(root / schema)
    if dataset == "mnist":
        make_idx(root, train=30, test=10, packed=False)
    elif dataset == "images":
        names = [f"{kind}/{i}.png" for kind in ("lily", "rose") for i in range(9)]
        pixels = np.arange(18, dtype=np.uint8).repeat(9).reshape(18, 3, 3)
        write_files(root, dict(zip(names, map(encode_image, pixels), strict=True)))
        write_files(root, {"lily/notes.txt": "no image"})
    elif dataset == "cifar10":
        names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
        write_files(root, dict.fromkeys(names, bytes(range(10)) * 3073))
    elif dataset == "tfrecord":
        for name in ("a.tfrecord", "more/b.tfrecord"):
            write_records(root / name, [{"a": i, "kind": (b"x", b"y")[i % 2]} for i in range(9)])
    elif dataset == "csv":
        write_files(root, {"a.csv": ROWS, "b.csv": ROWS})
    else:
        for name in ("a.parquet", "b.parquet"):
            table = pyarrow.csv.read_csv(io.BytesIO(ROWS.encode()))
            pyarrow.parquet.write_table(table, root / name)
    return flags, root / place
