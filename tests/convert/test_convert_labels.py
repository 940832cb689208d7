"""Labels of rows that a schema names or computes."""

import numpy as np
import pytest
import trips
import yaml
from dataset_files import convert_to, read_split

from common.errors import UserError

SCHEMA = yaml.safe_load("""
name: weather
origin: made up
columns:
  day: {type: int}
  rain: {type: float, unit: mm}
  wind: {type: float, default: 0.0}
  wet: {type: bool}
  flood: {type: int}
deep: [{column: day, numeric: z_score}]
""")


@pytest.fixture
def read(tmp_path):
    """Converts 90 days with a label; returns the manifest, and the label of each day.

    Day 40 has other texts in some columns.
    """

    def run(label, texts=None, **changes):
        rows = []
        for i in range(90):
            wet = ("F", " true")[i % 2]
            row = {"day": i, "rain": i / 10, "wind": i % 7, "wet": wet, "flood": int(i % 5 == 0)}
            rows.append({**row, **(texts or {})} if i == 40 else row)
        source = trips.write(tmp_path, rows, {**SCHEMA, "label": label, **changes})
        manifest = convert_to(tmp_path / "out", **source, shards=2)
        records = [row for split in manifest.splits for row in read_split(tmp_path / "out", split)]
        return manifest, {record["day"]: record["label"] for record in records}

    return run


@pytest.mark.parametrize(
    ("label", "num_bytes", "expected"),
    [
        (
            {"regression": {"rain": "rain", "worst": "rain + 2 * wind"}},
            8,
            lambda i: [i / 10, i / 10 + 2 * (i % 7)],
        ),
        (
            {"multi_label": {"wet": "wet", "windy": "wind > 4", "flooded": "flood"}},
            3,
            lambda i: [i % 2, i % 7 > 4, i % 5 == 0],
        ),
    ],
)
def test_targets(read, label, num_bytes, expected):
    manifest, labels = read(label)
    [(task, targets)] = label.items()
    assert (manifest.task, manifest.class_names) == (task, ())
    assert manifest.targets == tuple(targets)
    feature = manifest.feature("label")
    assert feature.dtype == ("int64" if task == "multi_label" else "float32")
    assert (feature.shape, feature.num_bytes) == (np.shape(expected(0)), num_bytes)
    np.testing.assert_allclose([labels[i] for i in range(90)], [*map(expected, range(90))], 1e-6)
    if task == "multi_label":
        totals = [split.class_histogram for split in manifest.splits.values()]
        assert np.sum(totals, axis=0).tolist() == np.sum([*labels.values()], axis=0).tolist()


def test_missing_target_names_filter(read):
    label = {"multi_label": {"wet": "wind < 3", "flood": "flood"}}
    kept = "flood IS NOT NULL AND wind IS NOT NULL"
    message = rf"rows\.csv: line 42: flood:? is missing.*'filter: {kept}'"
    with pytest.raises(UserError, match=message):
        read(label, {"flood": ""})
    _, labels = read(label, {"flood": ""}, filter=kept)
    assert labels.keys() == {*range(90)} - {40}


def test_condition_on_missing_value(read):
    label = {"condition": "wind IS NULL", "classes": ["known", "unknown"]}
    _, labels = read(label, {"wind": ""})
    assert [day for day, is_missing in labels.items() if is_missing] == [40]


@pytest.mark.parametrize(
    ("label", "texts", "message"),
    [
        ({"regression": "rain"}, {"rain": "nan"}, "rain: 'nan' is no"),
        ({"regression": {"x": "rain * rain"}}, {"rain": "3e20"}, r"x: '9e\+40' is no"),
        ({"multi_label": ["wet", "flood"]}, {"flood": 2}, "flood: '2' is"),
    ],
)
def test_label_out_of_range_is_refused(read, label, texts, message):
    with pytest.raises(UserError, match=rf"rows\.csv: line 42: {message}"):
        read(label, texts)
