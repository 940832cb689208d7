"""Sources that are read in different ways: folders of some hundreds of examples each."""

import pathlib

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import trips
from dataset_files import encode_image, make_idx, write_files, write_records

KINDS = ("idx", "images", "tfrecord", "csv", "parquet")


def make(kind: str, root: pathlib.Path) -> dict[str, str]:
    """Makes `source`, and `schema.yaml` if need be, below a directory; returns its flags."""
    source = root / "source"
    flags = {"dataset": kind, "source": str(source)}
    if kind == "idx":
        make_idx(source, size=(9, 7), packed=False, train=900, test=90)
        return flags
    if kind == "images":
        names = [f"{'ab'[i % 2]}/{i}.png" for i in range(300)]
        write_files(source, dict(zip(names, _images(), strict=True)))
        return flags
    if kind == "tfrecord":
        schema = "{name: t, origin: t, image: image, label: label, classes: 2}"
        write_files(root, {"schema.yaml": schema})
        records = [{"image": file, "label": i % 2} for i, file in enumerate(_images())]
        for i in range(3):
            write_records(source / f"{'abc'[i]}.tfrecord", records[i::3])
    else:
        rows = trips.rows(1200)
        for i, row in enumerate(rows):
            row["company"] += f", {'x' * (i % 60)}"
        trips.write(root, rows, {**trips.SCHEMA, "filter": "seconds > 100"})
        table = pyarrow.csv.read_csv(root / "rows.csv")
        write_files(source, {})
        for i in range(2):
            part, path = table[i * 600 :][:600], source / f"{'ab'[i]}.{kind}"
            if kind == "csv":
                pyarrow.csv.write_csv(part, path)
            else:
                pyarrow.parquet.write_table(part, path, row_group_size=100)
    return {**flags, "schema": str(root / "schema.yaml")}


def _images() -> list[bytes]:
    draw = np.random.default_rng(0)
    return [encode_image(draw.integers(0, 256, (9, 4 + i % 3, 3), np.uint8)) for i in range(300)]
