import pathlib
import re

import numpy as np
import pytest
import trips
import yaml

from common.errors import UserError
from common.manifest import Manifest
from components.convert.tables import yaml_loader

ROWS = trips.rows(900)
START = 1_400_000_000  # of `when`


def converted(directory, rule, **options) -> Manifest:
    return Manifest.load(trips.make(directory, ROWS, {**trips.SCHEMA, "split": rule}, **options))


def test_all_rows_with_one_value_go_to_one_split_and_not_where_the_rest_of_the_dataset_says(tmp_path, held):
    manifest = converted(tmp_path / "all", {"group": "when"})
    part = trips.make(tmp_path / "few", ROWS[450:], {**trips.SCHEMA, "split": {"group": "when"}}, processes=2)
    values = {split: {row["when"] for row in held(tmp_path / "all" / "data", split)} for split in manifest.splits}
    assert len(set().union(*values.values())) == sum(map(len, values.values())) == len({row["when"] for row in ROWS})
    assert all(len(of_split) > 2 for of_split in values.values())
    for split, of_split in values.items():
        assert {row["when"] for row in held(part, split)} <= of_split
    assert manifest.arguments["schema"]["split"] == {"group": "when"}


@pytest.mark.parametrize(
    "rule", [{"group": "seconds"}, {"group": "company"}, {"time": "when", "test_from": START + 80}]
)
def test_a_part_of_the_table_may_have_no_row_that_the_filter_keeps(tmp_path, rule):
    few = [{**row, "seconds": i} for i, row in enumerate(ROWS)]
    schema = {**trips.SCHEMA, "split": rule, "filter": {"greater_equal": ["seconds", 700]}}
    manifest = Manifest.load(trips.make(tmp_path, few, schema))
    assert sum(split.examples for split in manifest.splits.values()) == 200


def test_what_is_documented_is_read(tmp_path):
    rules = re.findall(r"^split: .*", (pathlib.Path(__file__).parents[3] / "docs" / "DATASETS.md").read_text(), re.M)
    columns = {**trips.SCHEMA["columns"], "user_id": {"type": "string"}, "day": {"type": "time"}}
    text = yaml.safe_dump({**trips.SCHEMA, "columns": columns})
    for rule in rules:
        (tmp_path / "schema.yaml").write_text(text + rule)
        assert yaml_loader.load(tmp_path / "schema.yaml").split
    assert len(rules) == 3


def test_later_rows_are_the_test_split_and_those_before_them_validation(tmp_path):
    rule = {"time": "when", "test_from": START + 80, "validation_from": START + 70}
    manifest = converted(tmp_path, rule, test_fraction=0.0)
    times = np.array([row["when"] for row in ROWS]) - START
    bounds = {"train": (0, 70), "validation": (70, 80), "test": (80, 100)}
    for split, (start, stop) in bounds.items():
        summary, within = manifest.splits[split].summaries["when"], times[(times >= start) & (times < stop)]
        assert manifest.splits[split].examples == len(within)
        assert (summary.min, summary.max) == (within.min() + START, within.max() + START)


def test_a_rule_that_leaves_nothing_for_training_is_told_as_that(tmp_path):
    with pytest.raises(UserError, match="there are only 0 training examples"):
        converted(tmp_path, {"time": "when", "test_from": START})


def test_a_vocabulary_is_that_of_the_training_split(tmp_path):
    manifest = converted(tmp_path, {"group": "seconds"}, processes=2)
    training = manifest.splits["train"].summaries["area"]
    assert manifest.deep[5].vocabulary[0] == training.frequent[0]
    assert sum(training.counts[:5]) == training.in_vocabulary


@pytest.mark.parametrize("rule", [{"group": "hour"}, {"time": "hour", "test_from": 20}])
def test_a_source_that_is_split_is_not_split_otherwise(tmp_path, write_records, fails, rule):
    for split in ("train", "test"):
        write_records(tmp_path / "source" / f"{split}.tfrecord", [{"hour": i, "tip": i % 2} for i in range(24)])
    schema = {
        **{"name": "trips", "origin": "made up", "split": rule},
        "columns": {"hour": {"type": "int"}, "tip": {"type": "int"}},
        "label": {"column": "tip", "classes": ["no", "yes"]},
        "wide": [{"column": "hour", "vocabulary": 24}],
    }
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema))
    flags = ("--dataset", "tfrecord", "--schema", tmp_path / "schema.yaml", "--source", tmp_path / "source")
    line = fails(*flags, "--output", tmp_path / "out")
    assert (
        "split: the source has its own test; take split out of the schema" in line and not (tmp_path / "out").exists()
    )
