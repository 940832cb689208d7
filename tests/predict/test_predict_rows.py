import datetime as dt
import decimal
import math
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.manifest import Feature
from components.predict.options import Options
from components.predict.rows import open_rows

D, NOON = decimal.Decimal, dt.datetime(2024, 1, 31, 12, 0, 0, 500_000)


@pytest.mark.parametrize(
    ("array", "kind", "texts"),
    [
        (pa.array([2, None, -(2**63)]), "int", ["2", "-", "-9223372036854775808"]),
        (pa.array([2**63 - 1], pa.uint64()), "int", ["9223372036854775807"]),
        # As pandas has gaps.
        (pa.array([2.0, None, math.nan, -3.0]), "int", ["2", "-", "-", "-3"]),
        (pa.array([D("7.00"), D("7.50")], pa.decimal128(9, 2)), "int", ["7", "7.50"]),
        (pa.array([dt.time(1, 2, 3, 999_999)], pa.time64("us")), "int", ["3723"]),
        (pa.array(["é".encode()]), "string", ["é"]),
        (pa.array([dt.date(1969, 12, 31)]), "time", ["1969-12-31"]),
        (pa.array([NOON], pa.timestamp("ns")), "time", ["2024-01-31 12:00:00.5"]),
        (
            pa.array([NOON.replace(tzinfo=dt.UTC)], pa.timestamp("us", "Asia/Tokyo")),
            "time",
            ["2024-01-31 12:00:00.5"],
        ),
    ],
)
def test_typed_value_becomes_cell(array, kind, texts, tmp_path):
    """Cells of a CSV file, which the model then reads as the converter does."""
    pq.write_table(pa.table({"x": array}), tmp_path / "x.parquet")
    column = Feature(name="x", header="x", dtype="string", type=kind, missing=("-", "NA"))
    model = SimpleNamespace(columns=[column], signatures=["raw"])
    source = str(tmp_path / "x.parquet")
    options = Options(model_dir="-", source=source, output="-.csv")
    with open_rows(options, model) as rows:
        ((_, inputs),) = rows.batches
    assert inputs["x"].tolist() == texts
