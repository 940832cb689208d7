import dataclasses
import datetime as dt
import math
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from staged import DEFAULTS, SCHEMA, columns, make_schema, read, rows

from components.convert.sources.tables import TableSource
from tests.errors import user_error

NOON = dt.datetime(2024, 1, 31, 12, 0, 0, 500_000)
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 500_000)
NUMBERS = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(38, 9)]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary()]


def stored(array, kind, directory):
    """Returns what is stored of a column, which the schema says is of type `kind`."""
    ones = [1] * len(array)
    pq.write_table(pa.table({"x": array, "f": ones, "y": ones}), directory / "t.parquet")
    schema = make_schema(columns=columns(x=kind, f="float", y="int"))
    table = rows(
        read(
            TableSource(name="parquet", kind="parquet", schema=schema),
            directory / "t.parquet",
            directory,
        )
    )
    return [row["x"] for row in table]


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        *((pa.array([2, None], pa.int8()).cast(n), "float", [2, None]) for n in NUMBERS),
        *((pa.array([2, None], pa.int8()).cast(n), "int", [2, None]) for n in NUMBERS),
        (pa.array([1.5, math.nan]), "float", [1.5, None]),
        *((pa.array(["é", None]).cast(pa.binary()).cast(t), "string", ["é", None]) for t in TEXTS),
        (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
        (pa.array(["Yes", None, "f"]), "bool", ["true", None, "false"]),
        *((pa.nulls(2), kind, [None, None]) for kind in DEFAULTS),
        (pa.array([dt.date(1969, 12, 31)]), "time", [-86400]),
        (pa.array([NOON, BEFORE], pa.timestamp("ns", "Europe/Berlin")), "time", [1706702400, -1]),
    ],
)
def test_parquet_type_is_taken(array, kind, expected, tmp_path):
    assert stored(array, f"{kind}?", tmp_path) == expected


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (pa.array([NOON]), "int", "column 'x' is TIMESTAMP"),
        (pa.array([1, 2**63], pa.uint64()), "int", "row 2: x: '922"),
        (pa.array([1, 2.5]), "int", "row 2: x: '2.5' is"),
        (pa.array([Decimal(1), Decimal("1.5")]), "int", "row 2: x: '1.5'"),
    ],
)
def test_parquet_value_is_refused(array, kind, message, tmp_path):
    with user_error(rf"t\.parquet: {message}"):
        stored(array, kind, tmp_path)


def write(path, *values):
    """Writes rows whose column `f` has these values."""
    count = len(values)
    floats = pa.array(values, pa.float64())
    table = {"f": floats, "i": pa.nulls(count), "s": ["x"] * count, "y": [1] * count}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path)


def test_parquet_folders_are_columns(tmp_path):
    write(tmp_path / "t/year=2023/a.parquet", 0, 1, 2)
    write(tmp_path / "elsewhere/b.pq", 3, 4, 5)
    (tmp_path / "t/year=2024").symlink_to(tmp_path / "elsewhere")
    source = TableSource(
        name="parquet",
        kind="parquet",
        schema=make_schema(columns={**SCHEMA.columns, **columns(year="int")}),
    )
    table = rows(read(source, tmp_path / "t", tmp_path))
    assert [(row["f"], row["year"]) for row in table] == [(i, 2023 + i // 3) for i in range(6)]
    (tmp_path / "t/year=2023").rename(tmp_path / "t/year=20x3")
    with user_error(r"a\.parquet: row 1: year: '20x3' is no 64-bit"):
        read(source, tmp_path / "t", tmp_path)


def test_parquet_files_lose_no_row(tmp_path):
    numbers = [*map(float, range(40_000))]
    for name, values in (("a", numbers), ("b", [0, 1]), ("c", [])):
        write(tmp_path / f"t/{name}.parquet", *values)
    source = TableSource(name="parquet", kind="parquet", schema=SCHEMA)
    examples = read(source, tmp_path / "t", tmp_path, shards=3)
    assert len(examples.pieces) == 3
    assert [row["f"] for row in rows(examples)] == [*numbers, 0, 1]
    path = tmp_path / "t/b.parquet"
    write(path, *numbers, None)
    fault = f"^{path}: row 40001: f: is missing"
    with user_error(fault):
        read(source, tmp_path / "t", tmp_path)
    (skipped,) = read(dataclasses.replace(source, skip_bad=1), tmp_path / "t", tmp_path).skipped
    assert re.match(fault, skipped)
    path.write_bytes(path.read_bytes()[:-9])
    with user_error(f"^{path}: cannot be read as a Parquet file"):
        read(source, tmp_path / "t", tmp_path)
