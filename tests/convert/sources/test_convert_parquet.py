import datetime as dt
import decimal
import math
import os
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from staged import DEFAULTS, SCHEMA, columns, make_schema, read, rows

from common.errors import UserError
from components.convert.schema import Input
from components.convert.source import Opening
from components.convert.sources import staging
from components.convert.sources.tables import ParquetSource, open_typed
from components.convert.splits import Splits

D = decimal.Decimal
NOON = dt.datetime(2024, 1, 31, 12, 0, 0, 500_000)
BEFORE = dt.datetime(1969, 12, 31, 23, 59, 59, 500_000)
NUMBERS = [
    pa.int8(),
    pa.uint16(),
    pa.int64(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
]
NUMBERS += [pa.decimal32(5, 2), pa.decimal128(38, 9), pa.decimal256(60, 0)]
TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]


def convert(array: pa.Array, kind: str, directory: pathlib.Path) -> list:
    """Returns the values that are stored of a column, which the schema says is of type `kind`."""
    schema = make_schema(
        columns=columns(x=kind, w="int?", y="int"), deep=(Input(column="w", numeric="z_score"),)
    )
    path = str(directory / "x.arrow")
    with staging.Staging(schema, path) as stage:
        batch = pa.table({"x": array, "w": pa.nulls(len(array)), "y": pa.array([1] * len(array))})
        staging.check_columns(batch.schema, {}, schema)
        stage.add_batch(batch.combine_chunks(), {}, lambda row: f"row {row}")
    return pa.ipc.open_file(path).read_all()["x"].to_pylist()


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        *(
            (pa.array([2, None, 3], pa.int8()).cast(n), k, [2, None, 3])
            for n in NUMBERS
            for k in ("float", "int")
        ),
        (pa.array([2**64 - 1], pa.uint64()), "float", [2.0**64]),
        (pa.array([1.5, math.nan]), "float", [1.5, None]),
        (pa.array([D("0E-9"), D("-7")], pa.decimal128(38, 9)), "int", [0, -7]),
        (pa.array([D("0.1")], pa.decimal128(38, 38)), "float", [np.float32(0.1)]),
        (pa.array([dt.time(1, 2, 3, 999_999)], pa.time64("us")), "int", [3723]),
        *(
            (pa.array(["é", None]).cast(pa.binary()).cast(text), "string", ["é", None])
            for text in TEXTS
        ),
        (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
        (pa.array([1, None, 0]), "bool", ["true", None, "false"]),
        (pa.array(["Yes", None, "f"]), "bool", ["true", None, "false"]),
        *((pa.nulls(2), kind, [None, None]) for kind in DEFAULTS),
        (pa.array([dt.date(2024, 1, 31), dt.date(1969, 12, 31)]), "time", [1706659200, -86400]),
        *(
            (pa.array([NOON, BEFORE], pa.timestamp(u)), "time", [1706702400, -1])
            for u in ("ms", "us", "ns")
        ),
        (
            pa.array([NOON.replace(tzinfo=dt.UTC)], pa.timestamp("us", "Europe/Berlin")),
            "time",
            [1706702400],
        ),
        (pa.array(["2024-01-31", "", "1969-12-31 23:59:59.5"]), "time", [1706659200, None, -1]),
    ],
)
def test_parquet_type_is_taken(array, kind, expected, tmp_path):
    assert convert(array, f"{kind}?", tmp_path) == expected


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (pa.array(["1"]), "float", "column 'x' is string, and type float takes numbers"),
        (pa.array([NOON]), "int", r"column 'x' is timestamp\[us\], and type int takes whole"),
        (pa.array([[1]]), "int", "column 'x' is list<.*>, and type int takes"),
        (
            pa.array([1, 2**63], pa.uint64()),
            "int",
            "row 1: x: '9223372036854775808' is no 64-bit whole number",
        ),
        (pa.array([1, 2.5]), "int", "row 1: x: '2.5' is no 64-bit whole number"),
        (pa.array([D(1), D("1.5")], pa.decimal128(9, 3)), "int", "row 1: x: '1.500' is no 64-bit"),
        (pa.array([1, None]), "int", "row 1: x: is missing, and the schema has no default"),
        (pa.array([b"a", b"\xff"]).view(pa.string()), "string", "row 1: x: .* is no text in UTF-8"),
        (pa.array(["y", "maybe"]), "bool", "row 1: x: 'maybe' is no boolean, which is true t yes"),
    ],
)
def test_parquet_value_is_refused(array, kind, message, tmp_path):
    with pytest.raises(UserError, match=f"^{message}") as error:
        convert(array, kind, tmp_path)
    assert "\n" not in str(error.value)


def parquet_rows(*values: float | None) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "f": pa.array(values, pa.float64()),
            "i": pa.nulls(count),
            "s": ["x"] * count,
            "y": [1] * count,
        }
    )


def test_parquet_folders_are_columns(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "table" / "year=2023").mkdir(parents=True)
    os.symlink(tmp_path / "elsewhere", tmp_path / "table" / "year=2024")
    pq.write_table(parquet_rows(0, 1, 2), tmp_path / "table" / "year=2023" / "a.parquet")
    pq.write_table(parquet_rows(3, 4, 5), tmp_path / "elsewhere" / "b.pq")
    schema = make_schema(columns={**SCHEMA.columns, **columns(year="int")})
    table = rows(read(ParquetSource(schema=schema), tmp_path / "table", tmp_path))
    assert [(row["f"], row["year"]) for row in table] == [(i, 2023 + i // 3) for i in range(6)]
    (tmp_path / "table" / "year=2023").rename(tmp_path / "table" / "year=20x3")
    with pytest.raises(
        UserError, match=r"a\.parquet: row 1: year: '20x3' is no 64-bit whole number"
    ):
        read(ParquetSource(schema=schema), tmp_path / "table", tmp_path)


def test_typed_files_of_several_splits(tmp_path):
    numbers = [*map(float, range(40_000))]
    for name, values in (("a", numbers), ("b", [0, 1]), ("c", [])):
        pq.write_table(parquet_rows(*values), tmp_path / f"{name}.parquet")
    parts = {
        "test": [(str(tmp_path / "b.parquet"), {})],
        "train": [(str(tmp_path / f"{n}.parquet"), {}) for n in "ac"],
    }
    opening = Opening(directory=str(tmp_path), splits=Splits(), shards=3)
    examples = open_typed(SCHEMA, parts, opening)
    assert [piece.split for piece in examples.pieces] == ["train"] * 3 + ["test"]
    assert [row["f"] for row in rows(examples)] == [*numbers, 0, 1]
    pq.write_table(parquet_rows(*numbers, None), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"^here 40000: f: is missing"):
        open_typed(SCHEMA, parts, opening, lambda path, row: f"here {row}")
    (tmp_path / "b.parquet").write_bytes((tmp_path / "b.parquet").read_bytes()[:-9])
    with pytest.raises(UserError, match=r"b\.parquet: damaged, encrypted or no Parquet file"):
        open_typed(SCHEMA, parts, opening)
