"""Sources that are read in different ways, some hundreds of examples each."""

import pathlib

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import trips
from dataset_files import encode_image, make_idx, write_files, write_records

KINDS = ("idx", "images", "records", "csv", "parquet")


def make(kind: str, root: pathlib.Path) -> dict[str, object]:
    """Makes a source below a directory; returns the options that name it."""
    source = root / "source"
    if kind == "idx":
        make_idx(source, size=(9, 7), packed=False, train=900, test=90)
        return {"dataset": "idx", "source": str(source)}
    return _images(kind, source) if kind in ("images", "records") else _table(kind, root)


def _images(kind: str, source: pathlib.Path) -> dict[str, object]:
    draw = np.random.default_rng(0)
    pixels = [draw.integers(0, 256, (9, 4 + i % 3, 3), np.uint8) for i in range(300)]
    files = [encode_image(image) for image in pixels]
    if kind == "images":
        write_files(source, {f"{'ab'[i % 2]}/{i}.png": file for i, file in enumerate(files)})
        return {"dataset": "images", "source": str(source)}
    records = [{"image": file, "label": i % 2} for i, file in enumerate(files)]
    paths = [write_records(source / f"{i}.tfrecord", records[i::3]) for i in range(3)]
    schema = {"schema.yaml": "{name: t, origin: t, image: image, label: label, classes: 2}"}
    write_files(source, schema)
    return {
        "dataset": "tfrecord",
        "source": tuple(map(str, paths)),
        "schema": str(source / "schema.yaml"),
    }


def _table(kind: str, root: pathlib.Path) -> dict[str, object]:
    rows = [
        {**row, "company": f"{row['company']}, {'x' * (i % 60)}"}
        for i, row in enumerate(trips.rows(1200))
    ]
    table = trips.write(root, rows, {**trips.SCHEMA, "filter": "seconds > 100"})
    source = pathlib.Path(table["source"]).with_suffix(f".{kind}")
    if kind == "parquet":
        pyarrow.parquet.write_table(
            pyarrow.csv.read_csv(table["source"]), source, row_group_size=100
        )
    return {**table, "dataset": kind, "source": str(source)}
