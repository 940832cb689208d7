"""Labels of rows that a schema names or computes."""

import numpy as np
import pytest
import trips
from dataset_files import parse_examples

from common.errors import UserError
from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options

SCHEMA = {
    "name": "weather",
    "origin": "made up",
    "columns": {
        "day": {"type": "int"},
        "rain": {"type": "float", "unit": "mm"},
        "wind": {"type": "float", "default": 0.0},
        "flood": {"type": "int"},
    },
    "deep": [{"column": "day", "numeric": "z_score"}],
}
ROWS = [{"day": i, "rain": i / 10, "wind": i % 7, "flood": int(i % 5 == 0)} for i in range(90)]


def read(tmp_path, label, rows=ROWS, **changes) -> Manifest:
    flags = trips.write(tmp_path, rows, {**SCHEMA, "label": label, **changes})
    return convert(Options(**flags, output=str(tmp_path / "out"), shards=2, validation_fraction=0))


def labels(tmp_path, manifest: Manifest) -> dict[int, list]:
    """Returns the label of each day, as the official library parses it."""
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    records = [
        record
        for shard in shards
        for record in parse_examples((tmp_path / "out" / shard.file).read_bytes())
    ]
    return {record["day"][0]: record["label"] for record in records}


@pytest.mark.parametrize(
    ("label", "dtype", "shape", "num_bytes", "expected"),
    [
        ({"regression": {"rain": "rain"}}, "float32", (), 4, lambda i: [np.float32(i / 10)]),
        (
            {"regression": {"rain": "rain", "worst": "rain + 2 * wind"}},
            "float32",
            (2,),
            8,
            lambda i: [np.float32(i / 10), np.float32(i / 10 + 2 * (i % 7))],
        ),
        (
            {"multi_label": {"wet": "rain > 3", "windy": "wind > 4", "flooded": "flood"}},
            "int64",
            (3,),
            3,
            lambda i: [int(i > 30), int(i % 7 > 4), int(i % 5 == 0)],
        ),
    ],
)
def test_targets(tmp_path, label, dtype, shape, num_bytes, expected):
    manifest = read(tmp_path, label)
    assert Manifest.load(tmp_path / "out") == manifest
    [(task, targets)] = label.items()
    assert (manifest.task, manifest.targets, manifest.class_names) == (task, tuple(targets), ())
    feature = manifest.feature("label")
    assert (feature.dtype, feature.shape, feature.num_bytes) == (dtype, shape, num_bytes)
    assert feature.value_range == ((0.0, 1.0) if task == "multi_label" else None)
    by_day = labels(tmp_path, manifest)
    assert by_day == {i: expected(i) for i in range(90)}
    parts = [split for split in manifest.splits.values() if split.examples]
    totals = [part.class_histogram for part in parts]
    if task == "regression":
        assert totals == [(), ()]
        totals = [
            [part.summaries[f"label.{name}"].mean * part.examples for name in targets]
            for part in parts
        ]
    assert np.sum(totals, axis=0) == pytest.approx(np.sum([*by_day.values()], axis=0))


@pytest.mark.parametrize(
    "written", [{"multi_label": {"wet": "wet", "dry": "NOT wet"}}, "condition", "column"]
)
def test_bool_column_as_label(tmp_path, written):
    is_several = isinstance(written, dict)
    label = written if is_several else {written: "wet", "classes": ["false", "true"]}
    rows = [{**row, "wet": ("F", " true", "no", "YES")[row["day"] % 4]} for row in ROWS]
    columns = {**SCHEMA["columns"], "wet": {"type": "bool"}}
    manifest = read(tmp_path, label, rows, columns=columns, filter="wet OR day > 9")
    kept = [i for i in range(90) if i % 2 or i > 9]
    assert labels(tmp_path, manifest) == {
        i: [i % 2, 1 - i % 2] if is_several else [i % 2] for i in kept
    }


def without(column: str, *days: int, rows=ROWS) -> list[dict]:
    return [{**row, column: "" if row["day"] in days else row[column]} for row in rows]


NO_RAIN = without("rain", 40, 41, 50)
FLOODS = {"multi_label": {"wet": "wind < 3", "flood": "flood"}}
TWO = {"regression": {"rain": "rain", "wind": "2 * wind", "flood": "flood"}}


@pytest.mark.parametrize(
    ("label", "rows", "kept"),
    [
        ({"regression": "rain"}, NO_RAIN, "rain IS NOT NULL"),
        (
            TWO,
            without("flood", 50, rows=NO_RAIN),
            "flood IS NOT NULL AND rain IS NOT NULL AND wind IS NOT NULL",
        ),
        (FLOODS, without("flood", 40, 60), "flood IS NOT NULL AND wind IS NOT NULL"),
    ],
)
def test_missing_target_names_filter(tmp_path, label, rows, kept):
    with pytest.raises(
        UserError, match=rf"rows\.csv: line 42: (rain|flood):? is missing.*'filter: {kept}'"
    ):
        read(tmp_path, label, rows)
    assert not (tmp_path / "out").exists()
    manifest = read(tmp_path, label, rows, filter=kept)
    assert labels(tmp_path, manifest).keys() == {
        row["day"] for row in rows if "" not in row.values()
    }


def test_condition_on_missing_value(tmp_path):
    rows = without("wind", 40, 41, 50)
    manifest = read(tmp_path, {"condition": "wind IS NULL", "classes": ["known", "unknown"]}, rows)
    assert sum(split.class_histogram[1] for split in manifest.splits.values()) == 3


@pytest.mark.parametrize(
    ("label", "change", "message"),
    [
        ({"regression": "rain"}, {"rain": "nan"}, r"rain: 'nan' is no finite 32-bit number"),
        (
            {"regression": {"square": "rain * rain"}},
            {"rain": "3e20"},
            r"square: '9e\+40' is no finite 32-bit number",
        ),
        (FLOODS, {"flood": 2}, "flood: '2' is neither"),
    ],
)
def test_label_out_of_range_is_refused(tmp_path, label, change, message):
    rows = [*ROWS[:3], {**ROWS[3], **change}, *ROWS[4:]]
    with pytest.raises(UserError, match=rf"rows\.csv: line 5: {message}"):
        read(tmp_path, label, rows)
