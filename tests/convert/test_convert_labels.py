"""Labels of rows that a schema names or computes."""

import numpy as np
import pytest
import trips

from common.errors import UserError
from common.manifest import MULTI_LABEL, REGRESSION, Manifest
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
    given = trips.write(tmp_path, rows, {**SCHEMA, "label": label, **changes})
    fractions = {"validation_fraction": 0, "test_fraction": 0.3}
    return convert(Options(**given, output=str(tmp_path / "out"), shards=2, **fractions))


def labels(tmp_path, manifest: Manifest, examples, split: str = "train") -> dict[int, list]:
    """The label of each day, as the official library parses it."""
    files = [tmp_path / "out" / shard.file for shard in manifest.splits[split].shards]
    return {record["day"][0]: record["label"] for file in files for record in examples(file.read_bytes())}


@pytest.mark.parametrize("written", ["rain", ["rain"], {"rain": "rain"}])
def test_one_target(tmp_path, examples, written):
    manifest = read(tmp_path, {"regression": written})
    assert Manifest.load(tmp_path / "out") == manifest
    assert (manifest.task, manifest.targets, manifest.class_names) == (REGRESSION, ("rain",), ())
    label = manifest.feature("label")
    assert (label.dtype, label.shape, label.num_bytes, label.value_range) == ("float32", (), 4, None)
    assert [feature.name for feature in manifest.inputs] == ["day"]
    found = {split: labels(tmp_path, manifest, examples, split) for split in ("train", "test")}
    assert {**found["train"], **found["test"]} == {i: [np.float32(i / 10)] for i in range(90)}
    train, test = (manifest.splits[split] for split in ("train", "test"))
    assert train.class_histogram == test.class_histogram == ()
    for split, part in (("train", train), ("test", test)):
        numbers = [value for (value,) in found[split].values()]
        summary = part.summaries["label.rain"]
        assert summary.mean == pytest.approx(np.mean(numbers)) and summary.max == max(numbers)


def test_several_targets_computed(tmp_path, examples):
    sums = {"rain": "rain", "worst": "rain + 2 * wind"}
    manifest = read(tmp_path, {"regression": sums})
    assert (manifest.targets, manifest.feature("label").shape) == (("rain", "worst"), (2,))
    assert manifest.feature("label").num_bytes == 8
    for day, label in labels(tmp_path, manifest, examples).items():
        assert label == [np.float32(day / 10), np.float32(day / 10 + 2 * (day % 7))]
    assert manifest.splits["train"].summaries.keys() >= {"label.rain", "label.worst"}


def test_several_labels(tmp_path, examples):
    conditions = {"wet": "rain > 3", "windy": "wind > 4", "flooded": "flood"}
    manifest = read(tmp_path, {"multi_label": conditions})
    assert (manifest.task, manifest.targets) == (MULTI_LABEL, ("wet", "windy", "flooded"))
    label = manifest.feature("label")
    assert (label.dtype, label.shape, label.num_bytes, label.value_range) == ("int64", (3,), 3, (0.0, 1.0))
    for split, part in manifest.splits.items():
        found = labels(tmp_path, manifest, examples, split) if part.examples else {}
        assert found == {i: [int(i > 30), int(i % 7 > 4), int(i % 5 == 0)] for i in found}
        assert part.class_histogram == tuple(sum(column) for column in zip([0, 0, 0], *found.values(), strict=True))
        assert not any(name.startswith("label") for name in part.summaries)


@pytest.mark.parametrize("written", [{"multi_label": {"wet": "wet", "dry": "NOT wet"}}, "condition", "column"])
def test_bool_column_as_label(tmp_path, examples, written):
    several = written if isinstance(written, dict) else {written: "wet", "classes": ["false", "true"]}
    rows = [{**row, "wet": ("F", " true", "no", "YES")[row["day"] % 4]} for row in ROWS]
    columns = {**SCHEMA["columns"], "wet": {"type": "bool"}}
    manifest = read(tmp_path, several, rows, columns=columns, filter="wet OR day > 9")
    assert manifest.feature("wet").type == "bool" and manifest.feature("wet").dtype == "string"
    found = labels(tmp_path, manifest, examples)
    assert found == {i: [i % 2, 1 - i % 2] if isinstance(written, dict) else [i % 2] for i in found}
    assert min(found) % 2 and {i % 2 for i in found} == {0, 1}


def without(column: str, *days: int, rows=ROWS) -> list[dict]:
    return [{**row, column: "" if row["day"] in days else row[column]} for row in rows]


NO_RAIN = without("rain", 40, 41, 50)
FLOODS = {"multi_label": {"wet": "wind < 3", "flood": "flood"}}
SQUARE = {"square": "rain * rain"}
TWO = {"rain": "rain", "wind": "2 * wind", "flood": "flood"}


@pytest.mark.parametrize(
    ("label", "rows", "message"),
    [
        ({"regression": "rain"}, NO_RAIN, "line 42: rain:? is missing.*'filter: rain IS NOT NULL'"),
        (
            {"regression": TWO},
            without("flood", 50, 60, rows=NO_RAIN),
            "line 42: rain:? is missing.*'filter: flood IS NOT NULL AND rain IS NOT NULL AND wind IS NOT NULL'",
        ),
        (
            FLOODS,
            without("flood", 5, 60),
            "line 7: flood:? is missing.*'filter: flood IS NOT NULL AND wind IS NOT NULL'",
        ),
    ],
)
def test_missing_target_refused_with_filter(tmp_path, label, rows, message):
    with pytest.raises(UserError, match=rf"rows\.csv: {message}"):
        read(tmp_path, label, rows)
    assert not (tmp_path / "out").exists()


def test_filter_of_rows_without_target(tmp_path, examples):
    manifest = read(tmp_path, {"regression": "rain"}, NO_RAIN, filter="rain IS NOT NULL")
    assert sum(split.examples for split in manifest.splits.values()) == 87
    assert {40, 41, 50}.isdisjoint(labels(tmp_path, manifest, examples))


def test_condition_of_missing_value(tmp_path):
    rows = without("wind", 40, 41, 50)
    manifest = read(tmp_path, {"condition": "wind IS NULL", "classes": ["known", "unknown"]}, rows)
    assert sum(split.class_histogram[1] for split in manifest.splits.values()) == 3


@pytest.mark.parametrize(
    ("label", "change", "message"),
    [
        ({"regression": "rain"}, {"rain": "nan"}, r"line 5: rain: 'nan' is no finite 32-bit number"),
        ({"regression": "rain"}, {"rain": "-1e39"}, r"line 5: rain: '-1e39' is no finite 32-bit number"),
        ({"regression": SQUARE}, {"rain": "3e20"}, r"line 5: square: '9e\+40' is no finite 32-bit number"),
        (FLOODS, {"flood": 2}, "line 5: flood: '2' is neither"),
    ],
)
def test_label_out_of_range_refused_with_row(tmp_path, label, change, message):
    with pytest.raises(UserError, match=rf"rows\.csv: {message}"):
        read(tmp_path, label, [{**row, **(change if row["day"] == 3 else {})} for row in ROWS])
