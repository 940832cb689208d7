"""A made-up table with every kind of column and encoding, as CSV with its schema, converted."""

import numpy as np

from components.convert.options import Options
from tests.rides import convert_quietly, write_source

SCHEMA = {
    "name": "trips",
    "origin": "made up",
    "columns": {
        "miles": {"type": "float", "default": 0.0},
        "seconds": {"type": "int"},
        "when": {"type": "int"},
        "company": {"type": "string", "default": ""},
        "area": {"type": "int", "default": -1},
        "same": {"type": "float"},
        "tip": {"type": "string"},
    },
    "label": {"column": "tip", "classes": ["no", "yes"]},
    "missing": ["", "-"],
    "deep": [
        {"column": "miles", "numeric": "z_score"},
        {"column": "when", "numeric": "z_score"},
        {"column": "same", "numeric": "z_score"},
        {"column": "company", "vocabulary": 3, "embedding": 4},
        {"column": "company", "hash_buckets": 7, "embedding": 4},
        {"column": "area", "vocabulary": 5, "embedding": 2},
        {"column": "seconds", "buckets": [60, 600.5]},
        {"column": "area", "hash_buckets": 5},
    ],
    "wide": [
        {"column": "seconds", "numeric": "z_score"},
        {"column": "miles", "buckets": [0.1, 1, 10]},
        {"column": "company", "vocabulary": 10},
        {"columns": ["miles", "seconds", "company"], "hash_buckets": 50},
    ],
}


def rows(count=600, seed=0):
    """Trips whose company says most about the tip, and the distance something more."""
    random = np.random.default_rng(seed)
    companies = ["Blue", "Green", "Łódź", "", "Red"]
    made = []
    for _ in range(count):
        company = companies[min(random.geometric(0.4) - 1, 4)]
        miles = round(float(random.exponential(3)), 1)
        chance = {"Blue": 0.9, "Green": 0.3}.get(company, 0.05) * (0.6 + 0.4 * (miles > 2))
        made.append(
            {
                "miles": miles if random.random() > 0.1 else "",
                "seconds": int(miles * 200),
                "when": 1_400_000_000 + int(random.integers(100)),
                "company": company,
                "area": int(random.integers(-3, 9)) if random.random() > 0.1 else "",
                "same": 2.5,
                "tip": "yes" if random.random() < chance else "no",
            }
        )
    return made


def write(directory, table=None, schema=SCHEMA):
    """Makes `rows.csv` and `schema.yaml`, of these trips unless told otherwise."""
    return write_source(directory, rows() if table is None else table, schema)


def make(
    directory,
    table=None,
    schema=SCHEMA,
    **options,
):
    """Makes both, and converts them; returns the dataset's directory."""
    data = directory / "data"
    files = write(directory, table, schema)
    convert_quietly(Options(**files, output=str(data), shards=3, **options))
    return data
