"""Sources of every kind, some hundreds of examples each, and what they have to come out as."""

import json
import pathlib
from collections.abc import Callable

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import trips
from PIL import Image

KINDS = ("idx", "cifar10", "images", "records", "csv", "jsonl", "parquet")


def make(kind: str, root: pathlib.Path, make_idx: Callable, write_records: Callable) -> dict[str, object]:
    """Makes such a source below a directory; returns the options that name it. Tables are looked at before they are written."""
    source = root / "source"
    if kind == "idx":
        make_idx(source, size=(9, 7), packed=False, train=900, test=90)
    elif kind == "cifar10":
        source.mkdir(parents=True)
        for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
            pixels = np.random.default_rng(len(name)).integers(0, 256, (60, 3073))
            pixels[:, 0] %= 10  # the label
            (source / name).write_bytes(pixels.astype(np.uint8).tobytes())
    elif kind in ("images", "records"):
        return _images(kind, source, write_records)
    else:
        return {**_table(kind, root), "dataset": kind}
    return {"dataset": kind, "source": str(source)}


def _images(kind: str, source: pathlib.Path, write_records: Callable) -> dict[str, object]:
    pixels = (np.random.default_rng(i).integers(0, 256, (9, 4 + i % 3, 3), np.uint8) for i in range(300))
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
    rows = [{**row, "company": f"{row['company']}, {'x' * (i % 60)}"} for i, row in enumerate(trips.rows(1200))]
    table = trips.write(root, rows, {**trips.SCHEMA, "filter": "seconds > 100"})
    source = pathlib.Path(table["source"]).with_suffix(f".{kind}")
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(table["source"]), source, row_group_size=100)
    elif kind == "jsonl":
        rows = [{name: None if value == "" else value for name, value in row.items()} for row in rows]
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {**table, "source": str(source)}
