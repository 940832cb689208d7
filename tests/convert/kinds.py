"""Sources that are read in different ways, some hundreds of examples each."""

import pathlib

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import trips
from dataset_files import make_idx, write_records
from PIL import Image

KINDS = ("idx", "images", "records", "csv", "parquet")


def make(kind: str, root: pathlib.Path) -> dict[str, object]:
    """Makes a source below a directory; returns the options that name it."""
    source = root / "source"
    if kind == "idx":
        make_idx(source, size=(9, 7), packed=False, train=900, test=90)
        return {"dataset": "idx", "source": str(source)}
    return _images(kind, source) if kind in ("images", "records") else _table(kind, root)


def _images(kind: str, source: pathlib.Path) -> dict[str, object]:
    pixels = (
        np.random.default_rng(i).integers(0, 256, (9, 4 + i % 3, 3), np.uint8) for i in range(300)
    )
    paths = [source / "ab"[i % 2] / f"{i}.png" for i in range(300)]
    for path, image in zip(paths, pixels, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    if kind == "images":
        return {"dataset": "images", "source": str(source)}
    records = [{"image": path.read_bytes(), "label": i % 2} for i, path in enumerate(paths)]
    paths = [write_records(source / f"{i}.tfrecord", records[i::3]) for i in range(3)]
    schema = source / "schema.yaml"
    schema.write_text("{name: t, origin: t, image: image, label: label, classes: 2}")
    return {"dataset": "tfrecord", "source": tuple(map(str, paths)), "schema": str(schema)}


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
