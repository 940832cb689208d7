"""A made-up table that has every type of column."""

import contextlib
import csv
import datetime as dt
import gzip
import io

import numpy as np
import yaml

from components.convert.convert import convert
from components.convert.options import Options

START = dt.datetime(2024, 1, 31, 8, 15)
SCHEMA = {
    "name": "rides",
    "origin": "made up",
    "columns": {
        "fare": {"type": "float", "default": 0.5, "header": "Fare (USD)"},
        "Stops": {"type": "int", "default": -1, "indicator": True, "header": "stops"},
        "began": {"type": "time", "default": 0},
        "paid": {"type": "bool", "default": False},
        "company": {"type": "string", "default": "none"},
        "tip": {"type": "string"},
    },
    "label": {"column": "tip", "classes": ["no", "yes"]},
    "other_columns": "ignore",
    "deep": [
        *({"column": name, "numeric": "z_score"} for name in ("fare", "Stops", "began")),
        *({"column": name, "hash_buckets": 20, "embedding": 3} for name in ("paid", "company")),
    ],
}


def typed_rows(count):
    """Rows with gaps."""
    draw = np.random.default_rng(0)

    def sometimes(value):
        return value if draw.random() > 0.2 else None

    return [
        {
            "id": f"#{i}",
            "Fare (USD)": sometimes(float(draw.normal(10, 5))),
            "stops": sometimes(int(draw.integers(0, 9))),
            "began": sometimes(START + dt.timedelta(minutes=int(draw.integers(10**6)))),
            "paid": sometimes(bool(draw.random() > 0.5)),
            "company": sometimes("Łódź" if i % 3 else "Blue, Inc."),
            "tip": ("no", "yes")[i % 2],
        }
        for i in range(count)
    ]


def write_csv(path, rows):
    """Writes rows, packed if the path ends in .gz; what is missing is an empty cell."""
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_source(folder, rows, schema):
    """Makes `rows.csv` and `schema.yaml`; returns the options that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    table, columns = folder / "rows.csv", folder / "schema.yaml"
    write_csv(table, rows)
    columns.write_text(yaml.safe_dump(schema, sort_keys=False), encoding="utf-8")
    return {"dataset": "csv", "source": str(table), "schema": str(columns)}


def source(folder, rows, **schema):
    """Writes rows and a schema with other values of some keys; returns their conversion."""
    return Options(**write_source(folder, rows, SCHEMA | schema), output=str(folder / "data"))


def convert_quietly(options):
    """Converts, and prints nothing."""
    with contextlib.redirect_stdout(io.StringIO()):
        return convert(options)
