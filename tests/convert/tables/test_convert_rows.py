from __future__ import annotations

import collections
import contextlib
import csv
import gzip
import io
import pathlib

import numpy as np
import pytest
import yaml

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import find_reader, source_digest
from components.convert.writing.splits import carve
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest

CONVERTERS = {"float": float, "int": int, "string": str}

SCHEMA = {
    "name": "trips",
    "origin": "made up",
    "columns": {
        "fare": {"type": "float", "unit": "USD"},
        "tips": {"type": "float"},
        "seconds": {"type": "int", "default": -5},
        "company": {"type": "string", "default": ""},
    },
    "label": {"condition": {"greater": ["tips", {"times": [0.2, "fare"]}]}, "classes": ["no", "yes"]},
    "deep": [{"column": "fare", "numeric": "z_score"}, {"column": "company", "vocabulary": 2, "embedding": 3}],
    "wide": [{"column": "seconds", "vocabulary": 50}],
}


def write(directory: pathlib.Path, rows: list[dict], schema: dict = SCHEMA) -> dict[str, str]:
    """A CSV file and its schema; returns the options that name them."""
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, schema["columns"])
        writer.writeheader()
        writer.writerows(rows)
    (directory / "schema.yaml").write_text(yaml.safe_dump(schema, sort_keys=False), encoding="utf-8")
    return {"dataset": "csv", "source": str(directory / "rows.csv"), "schema": str(directory / "schema.yaml")}


def quietly(**options) -> Manifest:
    with contextlib.redirect_stdout(io.StringIO()):
        return convert(Options(**options))


def trips(count: int, seed: int = 0) -> list[dict]:
    random = np.random.default_rng(seed)
    return [
        {
            "fare": round(float(random.gamma(2, 5)), 2),
            "tips": round(float(random.gamma(1, 2)), 2),
            "seconds": random.choice(["", *map(str, range(-3, 9))]),
            "company": random.choice(["", "Blue", "Ünited", "Zed", "Yell, ow"], p=[0.3, 0.4, 0.1, 0.1, 0.1]),
        }
        for _ in range(count)
    ]


def stored(row: dict, schema: dict = SCHEMA) -> dict[str, list]:
    """What a row's record holds of its columns."""
    made = {}
    for name, column in schema["columns"].items():
        value = column["default"] if row[name] == "" and "default" in column else CONVERTERS[column["type"]](row[name])
        value = value.encode() if isinstance(value, str) else value
        made[name] = [float(np.float32(value)) if column["type"] == "float" else value]
    return made


def read(directory: pathlib.Path, manifest: Manifest, split: str, examples) -> list[dict]:
    return [
        example
        for shard in manifest.splits[split].shards
        for example in examples((directory / shard.file).read_bytes())
    ]


def test_manifest_and_records_of_a_table(tmp_path, examples):
    rows = trips(400)
    options = write(tmp_path, rows)
    manifest = quietly(**options, output=str(tmp_path / "out"), shards=3)
    assert Manifest.load(tmp_path / "out") == manifest and manifest.name == "trips"
    assert manifest.class_names == ("no", "yes") and manifest.record_bytes is None
    assert [feature.name for feature in manifest.inputs] == ["company", "fare", "seconds"]
    parts = carve({"train": len(rows)}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    for split, part in manifest.splits.items():
        chosen = [rows[i] for i in parts[split][1][:]]
        labels = [int(row["tips"] > 0.2 * row["fare"]) for row in chosen]
        assert read(tmp_path / "out", manifest, split, examples) == [
            {**stored(row), "label": [label]} for row, label in zip(chosen, labels, strict=True)
        ]
        assert part.class_histogram == tuple(np.bincount(labels, minlength=2))
        for shard in part.shards:
            starts = np.fromfile(tmp_path / "out" / shard.index, "<i8")
            assert len(starts) == shard.examples + 1 and starts[-1] == shard.bytes


def test_what_is_told_of_columns_comes_from_the_training_split_alone(tmp_path):
    rows = trips(400)
    train = carve({"train": 400}, validation_fraction=0.1, test_fraction=0.2, seed=0)["train"][1][:]
    others = sorted(set(range(400)) - set(train))
    manifest = quietly(**write(tmp_path / "a", rows), output=str(tmp_path / "a" / "out"))
    for i in others:  # what the other splits have does not matter
        rows[i] = {"fare": 1e6, "tips": 0, "seconds": "123", "company": "Zed"}
    other = quietly(**write(tmp_path / "b", rows), output=str(tmp_path / "b" / "out"))
    assert (other.deep, other.wide) == (manifest.deep, manifest.wide)
    assert [f.statistics for f in other.features] == [f.statistics for f in manifest.features]
    assert other.fingerprint != manifest.fingerprint

    fares = np.array([rows[i]["fare"] for i in train], np.float32).astype(float)
    statistics = manifest.feature("fare").statistics
    assert (statistics.mean, statistics.std) == pytest.approx((fares.mean(), fares.std()), rel=1e-12)
    assert (statistics.min, statistics.max, statistics.missing) == (fares.min(), fares.max(), 0)
    seconds = [rows[i]["seconds"] for i in train]
    present = [int(value) for value in seconds if value]
    statistics = manifest.feature("seconds").statistics
    assert statistics.missing == seconds.count("") > 0 and manifest.feature("seconds").default == -5
    assert statistics.mean == pytest.approx(np.mean(present)) and (statistics.min, statistics.max) == (-3, 8)
    assert manifest.feature("company").statistics.missing == sum(rows[i]["company"] == "" for i in train)

    assert manifest.deep[1].vocabulary == ("Blue", "") and manifest.deep[1].categories == 3
    counts = collections.Counter(int(value or -5) for value in seconds)
    assert manifest.wide[0].vocabulary == tuple(sorted(counts, key=lambda value: (-counts[value], value)))
    label = manifest.feature("label")
    assert (label.dtype, label.value_range, label.num_bytes) == ("int64", (0.0, 1.0), 1)
    assert manifest.feature("fare").unit == "USD"


@pytest.mark.parametrize("column", ["label", "kind"])
def test_a_column_may_be_the_label_by_name_or_by_number(tmp_path, examples, column):
    schema = {
        **SCHEMA,
        "columns": {column: {"type": {"label": "string", "kind": "int"}[column]}, "x": {"type": "float"}},
        "label": {"column": column, "classes": ["b", "a", "c"]},
        "deep": [{"column": "x", "numeric": "z_score"}],
        "wide": [],
    }
    rows = [{column: {"label": "bac"[i % 3], "kind": i % 3}[column], "x": i / 4} for i in range(30)]
    options = write(tmp_path, rows, schema)
    manifest = quietly(**options, output=str(tmp_path / "out"), validation_fraction=0, test_fraction=0)
    own = {} if column == "label" else {"kind": [0]}  # what is named `label` is not stored twice
    got = read(tmp_path / "out", manifest, "train", examples)
    assert [example["label"] for example in got] == [[i % 3] for i in range(30)]
    assert got[0] == {"x": [0.0], "label": [0], **own}
    assert [feature.name for feature in manifest.inputs] == ["x"] and manifest.class_names == ("b", "a", "c")


def test_the_filter_leaves_rows_out_whose_labels_need_not_fit(tmp_path, examples, capsys):
    schema = {
        **SCHEMA,
        "columns": {**SCHEMA["columns"], "company": {"type": "string", "default": "none"}},
        "label": {"column": "company", "classes": ["Blue", "none"]},
        "filter": {
            "all": [
                {"any": [{"equal": ["company", {"text": text}]} for text in ("Blue", "none")]},
                {"present": "seconds"},
            ]
        },
        "deep": [{"column": "fare", "numeric": "z_score"}],
    }
    rows = trips(200)
    options = write(tmp_path, rows, schema)
    manifest = convert(Options(**options, output=str(tmp_path / "out"), validation_fraction=0, test_fraction=0))
    kept = [row for row in rows if row["company"] in ("", "Blue") and row["seconds"] != ""]
    assert f"{200 - len(kept)} of 200 rows are left out by the schema's filter" in capsys.readouterr().out
    got = read(tmp_path / "out", manifest, "train", examples)
    assert got == [{**stored(row, schema), "label": [int(row["company"] == "")]} for row in kept]
    options = write(tmp_path, rows, {**schema, "filter": {"greater": ["fare", 1e9]}})
    with pytest.raises(UserError, match=r"rows\.csv: the schema's filter leaves no row"):
        find_reader("csv", schema=options["schema"]).read(options["source"])


def test_several_files_a_directory_of_them_and_one_file_of_all_give_the_same_bytes(tmp_path, content):
    rows = trips(60)
    whole = write(tmp_path / "whole", rows)
    for i in range(3):
        write(tmp_path / "parts", rows[20 * i : 20 * i + 20])
        (tmp_path / "parts" / "rows.csv").rename(tmp_path / "parts" / f"part{i}{('.csv', '.CSV', '.csv.gz')[i]}")
    packed = tmp_path / "parts" / "part2.csv.gz"
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    (tmp_path / "parts" / "part4.csv.d").mkdir()
    parts = tuple(str(tmp_path / "parts" / name) for name in ("part0.csv", "part1.CSV", "part2.csv.gz"))
    quietly(**whole, output=str(tmp_path / "a"))
    quietly(**{**whole, "source": parts}, output=str(tmp_path / "b"))
    quietly(**{**whole, "source": str(tmp_path / "parts")}, output=str(tmp_path / "c"))
    assert content(tmp_path / "a") == content(tmp_path / "b") == content(tmp_path / "c")
    files = find_reader("csv", schema=whole["schema"]).files(str(tmp_path / "parts"))
    assert [path.name for path in files] == ["schema.yaml", "part0.csv", "part1.CSV", "part2.csv.gz"]
    (tmp_path / "parts" / "part2.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.raises(UserError, match=r"part2\.csv\.gz: is packed, and part2\.csv beside it is not; delete one of"):
        find_reader("csv", schema=whole["schema"]).files(str(tmp_path / "parts"))
    before = source_digest("csv", parts, whole["schema"])
    pathlib.Path(whole["schema"]).write_text(pathlib.Path(whole["schema"]).read_text() + "missing: ['']\n")
    assert source_digest("csv", parts, whole["schema"]) != before


def test_another_schema_is_another_dataset_and_a_damaged_index_is_found(tmp_path):
    options = write(tmp_path, trips(60))
    quietly(**options, output=str(tmp_path / "out"), shards=2)
    write(tmp_path, trips(60), {**SCHEMA, "filter": {"greater": ["fare", -1]}})  # of no effect on the rows
    with pytest.raises(UserError, match=r"holds another dataset \(dataset=trips fingerprint="):
        quietly(**options, output=str(tmp_path / "out"), shards=2)
    write(tmp_path, trips(60))
    index = tmp_path / "out" / "train-00001-of-00002.index"
    index.write_bytes(b"x" + index.read_bytes()[1:])
    with pytest.raises(UserError, match=r"train-00001-of-00002\.index is missing or damaged"):
        quietly(**options, output=str(tmp_path / "out"), shards=2)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("company", r"line 5: company: 'Zed' is no class \(known: Blue, none\)"),
        ("seconds", r"line 3: seconds: '7' is no class \(known: 0 to 1\)"),
    ],
)
def test_a_label_outside_the_classes_is_told_with_its_line(tmp_path, column, message):
    schema = {**SCHEMA, "label": {"column": column, "classes": ["Blue", "none"]}, "wide": []}
    schema["deep"] = [{"column": "fare", "numeric": "z_score"}]
    made = zip(("Blue", "none", "Blue", "Zed"), (0, 7, 1, 0), strict=True)
    rows = [{"fare": 1, "tips": 1, "seconds": seconds, "company": company} for company, seconds in made]
    with pytest.raises(UserError, match=r"rows\.csv: " + message):
        quietly(**write(tmp_path, rows, schema), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_column_without_values_in_training_cannot_be_normalised(tmp_path, fails):
    schema = {**SCHEMA, "deep": [{"column": "seconds", "numeric": "z_score"}], "wide": []}
    options = write(tmp_path, [{**row, "seconds": ""} for row in trips(20)], schema)
    with pytest.raises(UserError, match="column 'seconds' has no values in the training split"):
        quietly(**options, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--dataset", "csv", "--source", "x.csv"), "dataset 'csv' needs --schema FILE"),
        (("--dataset", "csv", "--schema", "x.yaml"), "dataset 'csv' needs --source FILE..."),
        (("--dataset", "taxi", "--source", "nothing.csv"), "nothing.csv: no such file"),
        (("--dataset", "taxi", "--source", "components/convert"), "components/convert: holds no *.csv or *.tsv files"),
        (
            ("--dataset", "taxi", "--source", "a", "--schema", "x.yaml"),
            "--schema x.yaml means nothing to dataset 'taxi'",
        ),
        (("--dataset", "mnist", "--source", "a", "b"), "--source a b: dataset 'mnist' takes one path, not 2"),
        (("--dataset", "csv", "--source", "README.md", "--schema", "no.yaml"), "--schema no.yaml: No such file"),
    ],
)
def test_flags_that_do_not_fit_together(tmp_path, fails, flags, message):
    assert message in fails(*flags, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_googles_layout_in_cents(tmp_path, examples):
    header = "tip,trip_miles,trip_seconds,fare,trip_start_month,trip_start_hour,trip_start_day,pickup_community_area,"
    header += "dropoff_community_area,pickup_census_tract,dropoff_census_tract,pickup_latitude,pickup_longitude,"
    header += "dropoff_latitude,dropoff_longitude,payment_type,company"
    lines = [f"{i % 2},1.1,420,{600 + i},8,16,3,,8,17031839100,,41.9,-87.6,,,Cash,Blue" for i in range(30)]
    (tmp_path / "taxi_trips_train.csv").write_text("\n".join([header, *lines]))
    source = str(tmp_path / "taxi_trips_train.csv")
    manifest = quietly(
        dataset="taxi_cents", source=source, output=str(tmp_path / "out"), validation_fraction=0, test_fraction=0
    )
    got = read(tmp_path / "out", manifest, "train", examples)
    assert [(e["label"], e["tip"], e["fare"]) for e in got] == [([i % 2], [i % 2], [600 + i]) for i in range(30)]
    assert got[0]["pickup_census_tract"] == [b"17031839100"] and got[0]["pickup_community_area"] == [b""]
    assert manifest.feature("fare").unit == "US cents" and "tip" not in {f.name for f in manifest.inputs}
