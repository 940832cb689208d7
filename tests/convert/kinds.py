"""Sources that are read in different ways: folders of some hundreds of examples each."""

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import trips
from dataset_files import encode_image, make_idx, write_files

KINDS = ("idx", "images", "csv", "parquet")


def make(kind, root):
    """Makes `source`, and `schema.yaml` if need be, below a directory; returns its flags."""
    source = root / "source"
    flags = {"dataset": kind, "source": str(source)}
    draw = np.random.default_rng(0)
    if kind == "idx":
        make_idx(source, size=(9, 7), packed=False, train=900, test=90)
        return flags
    if kind == "images":
        pixels = [draw.integers(0, 256, (9, 4 + i % 3, 3), np.uint8) for i in range(300)]
        images = map(encode_image, pixels)
        write_files(source, {f"{'ab'[i % 2]}/{i}.png": file for i, file in enumerate(images)})
        return flags
    rows = trips.rows(1200)
    for i, row in enumerate(rows):
        row["company"] += f", {'x' * (i % 60)}"
    trips.write(root, rows, {**trips.SCHEMA, "filter": "seconds > 100"})
    table = pyarrow.csv.read_csv(root / "rows.csv")
    write_files(source, {})
    for part, name in ((table[:600], "a"), (table[600:], "b")):
        if kind == "csv":
            pyarrow.csv.write_csv(part, source / f"{name}.csv")
        else:
            pyarrow.parquet.write_table(part, source / f"{name}.parquet", row_group_size=100)
    return {**flags, "schema": f"{root}/schema.yaml"}
