import contextlib
import gzip
import io
import json
import os
import pathlib

import numpy as np
import pytest
import trips
from divided import drawn

from common.errors import UserError
from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import find_reader

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


def quietly(**options) -> Manifest:
    with contextlib.redirect_stdout(io.StringIO()):
        return convert(Options(**options))


def made(count: int, seed: int = 0) -> list[dict]:
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


def stored(row: dict, schema: dict = SCHEMA) -> dict[str, object]:
    """What a row's record holds of its columns."""
    found = {}
    for name, column in schema["columns"].items():
        value = column["default"] if row[name] == "" and "default" in column else CONVERTERS[column["type"]](row[name])
        value = value.encode() if isinstance(value, str) else value
        found[name] = float(np.float32(value)) if column["type"] == "float" else value
    return found


def test_manifest_and_records_of_a_table(tmp_path, held):
    rows = made(400)
    options = trips.write(tmp_path, rows, SCHEMA)
    manifest = quietly(**options, output=str(tmp_path / "out"), shards=3)
    assert Manifest.load(tmp_path / "out") == manifest and manifest.name == "trips"
    assert manifest.class_names == ("no", "yes") and manifest.record_bytes is None
    assert [feature.name for feature in manifest.inputs] == ["company", "fare", "seconds"]
    parts = drawn(len(rows))
    for split, part in manifest.splits.items():
        chosen = [rows[i] for i in parts[split]]
        labels = [int(row["tips"] > 0.2 * row["fare"]) for row in chosen]
        expected = [{**stored(row), "label": label} for row, label in zip(chosen, labels, strict=True)]
        assert held(tmp_path / "out", split) == expected
        assert part.class_histogram == tuple(np.bincount(labels, minlength=2))
        for shard in part.shards:
            starts = np.fromfile(tmp_path / "out" / shard.index, "<i8")
            assert len(starts) == shard.examples + 1 and starts[-1] == shard.bytes


@pytest.mark.parametrize("column", ["label", "kind"])
def test_a_column_may_be_the_label_by_name_or_by_number(tmp_path, held, column):
    schema = {
        **SCHEMA,
        "columns": {column: {"type": {"label": "string", "kind": "int"}[column]}, "x": {"type": "float"}},
        "label": {"column": column, "classes": ["b", "a", "c"]},
        "deep": [{"column": "x", "numeric": "z_score"}],
        "wide": [],
    }
    rows = [{column: {"label": "bac"[i % 3], "kind": i % 3}[column], "x": i / 4} for i in range(30)]
    options = trips.write(tmp_path, rows, schema)
    manifest = quietly(**options, output=str(tmp_path / "out"), validation_fraction=0, test_fraction=0)
    own = {} if column == "label" else {"kind": 0}  # what is named `label` is not stored twice
    got = held(tmp_path / "out")
    assert [example["label"] for example in got] == [i % 3 for i in range(30)]
    assert got[0] == {"x": 0.0, "label": 0, **own}
    assert [feature.name for feature in manifest.inputs] == ["x"] and manifest.class_names == ("b", "a", "c")


def test_the_filter_leaves_rows_out_whose_labels_need_not_fit(tmp_path, held, capsys):
    schema = {
        **SCHEMA,
        "label": {"column": "company", "classes": ["Blue", "Zed"]},
        "filter": {
            "all": [{"any": [{"equal": ["company", {"text": t}]} for t in ("Blue", "Zed")]}, {"present": "seconds"}]
        },
        "deep": [{"column": "fare", "numeric": "z_score"}],
    }
    rows = made(200)
    options = trips.write(tmp_path, rows, schema)
    convert(Options(**options, output=str(tmp_path / "out"), validation_fraction=0, test_fraction=0))
    kept = [row for row in rows if row["company"] in ("Zed", "Blue") and row["seconds"] != ""]
    assert f"{200 - len(kept)} of 200 rows are left out by the schema's filter" in capsys.readouterr().out
    got = held(tmp_path / "out")
    assert got == [{**stored(row, schema), "label": int(row["company"] == "Zed")} for row in kept]
    options = trips.write(tmp_path, rows, {**schema, "filter": {"greater": ["fare", 1e9]}})
    with pytest.raises(UserError, match="the schema's filter leaves no row"):
        quietly(**options, output=str(tmp_path / "none"))


def test_several_files_a_directory_of_them_and_one_file_of_all_give_the_same_records(tmp_path, content):
    rows = made(60)
    whole = trips.write(tmp_path / "whole", rows, SCHEMA)
    for i in range(3):
        trips.write(tmp_path / "parts", rows[20 * i : 20 * i + 20], SCHEMA)
        (tmp_path / "parts" / "rows.csv").rename(tmp_path / "parts" / f"part{i}{('.csv', '.CSV', '.csv.gz')[i]}")
    packed = tmp_path / "parts" / "part2.csv.gz"
    packed.write_bytes(gzip.compress(packed.read_bytes()))
    (tmp_path / "parts" / "part4.csv.d").mkdir()
    parts = tuple(str(tmp_path / "parts" / name) for name in ("part0.csv", "part1.CSV", "part2.csv.gz"))
    quietly(**whole, output=str(tmp_path / "a"))
    quietly(**{**whole, "source": parts}, output=str(tmp_path / "b"))
    quietly(**{**whole, "source": str(tmp_path / "parts")}, output=str(tmp_path / "c"))
    a, b, c = ({n: d for n, d in content(tmp_path / out).items() if ".tfrecord" in n} for out in "abc")
    assert a == b == c and a
    files = find_reader("csv", schema=whole["schema"]).files(str(tmp_path / "parts"))
    assert [os.path.basename(file.path) for file in files] == ["part0.csv", "part1.CSV", "part2.csv.gz"]
    (tmp_path / "parts" / "part2.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.raises(UserError, match=r"part2\.csv\.gz: is packed, and part2\.csv beside it is not; delete one of"):
        find_reader("csv", schema=whole["schema"]).files(str(tmp_path / "parts"))


def test_another_schema_is_another_dataset(tmp_path):
    output = str(tmp_path / "out")
    quietly(**trips.write(tmp_path, made(60), SCHEMA), output=output)
    filtered = {**SCHEMA, "filter": {"greater": ["fare", -1]}}  # of no effect on the rows
    with pytest.raises(UserError, match=r"holds another dataset \(dataset=trips fingerprint="):
        quietly(**trips.write(tmp_path, made(60), filtered), output=output)


@pytest.mark.parametrize(
    ("label", "deep", "message"),
    [
        ("company", "fare", r"rows\.csv: line 5: company: 'Zed' is no class \(known: Blue, none\)"),
        ("seconds", "fare", r"rows\.csv: line 3: seconds: '7' is no class \(known: 0 to 1\)"),
        ("tips", "seconds", "column 'seconds' has no values in the training split"),
    ],
)
def test_a_label_outside_the_classes_and_a_column_without_values_are_told(tmp_path, label, deep, message):
    schema = {**SCHEMA, "deep": [{"column": deep, "numeric": "z_score"}], "wide": []}
    values = zip(("Blue", "none", "Blue", "Zed"), (0, 7, 1, 0), strict=True)
    rows = [{"fare": 1, "tips": 1, "seconds": seconds, "company": company} for company, seconds in values]
    if label == "tips":
        rows = [{**row, "seconds": ""} for row in rows]
    else:
        schema["label"] = {"column": label, "classes": ["Blue", "none"]}
    with pytest.raises(UserError, match=message):
        quietly(**trips.write(tmp_path, rows, schema), output=str(tmp_path / "out"), shards=1)
    assert not (tmp_path / "out").exists()


def test_the_real_taxi_trips(tmp_path):
    taxi = pathlib.Path(__file__).parents[4] / "shared" / "data" / "taxi" / "data.csv"
    if not taxi.is_file():
        pytest.skip("the taxi trips are not in ../shared/data/taxi")
    manifest = quietly(dataset="taxi", source=str(taxi), output=str(tmp_path / "out"))
    counts = np.sum([split.class_histogram for split in manifest.splits.values()], axis=0)
    assert counts.sum() == 15_002 and round(100 * counts[1] / 15_002, 2) == 22.49
    assert manifest.deep[3].vocabulary[:3] == ("Cash", "Credit Card", "No Charge")
    assert [f.name for f in manifest.inputs] == ["company", "fare", "payment_type", "trip_miles", "trip_seconds"]


def test_a_column_without_a_value_in_any_row_is_told(tmp_path, capsys):
    """Lines of JSON may have none of a key, and a key that is misspelt would be a column of defaults without a word."""
    source, schema = tmp_path / "rows.jsonl", tmp_path / "schema.yaml"
    rows = [{"fare": i, "tips": i % 2, "SECONDS": i, "company": "Blue"} for i in range(50)]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    schema.write_text(json.dumps({**SCHEMA, "wide": [], "other_columns": "ignore"}))
    convert(Options(dataset="jsonl", source=str(source), schema=str(schema), output=str(tmp_path / "out")))
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("column")]
    assert told == ["column seconds: the source has no value of it in any training example; all have the default"]


def test_rows_that_are_wrong_are_listed_beside_the_manifest_or_too_many(tmp_path, content, capsys, fails):
    rows = made(300)
    whole = trips.write(tmp_path / "whole", rows, SCHEMA)
    wrong = trips.write(tmp_path / "wrong", [*rows, {**rows[0], "fare": "x"}, {**rows[0], "tips": "nan"}], SCHEMA)
    quietly(**whole, output=str(tmp_path / "a"))
    manifest = convert(Options(**wrong, output=str(tmp_path / "b"), skip_bad=2))
    assert "2 of 302 rows are wrong and left out; skipped.txt lists them" in capsys.readouterr().out
    told = (tmp_path / "b" / "skipped.txt").read_text().splitlines()
    assert [line.partition("rows.csv: ")[2] for line in told] == [
        "line 302: fare: 'x' is no finite 32-bit number",
        "line 303: tips: 'nan' is no finite 32-bit number",
    ]
    a, b = content(tmp_path / "a"), content(tmp_path / "b")
    assert {n: d for n, d in a.items() if "tfrecord" in n} == {n: d for n, d in b.items() if "tfrecord" in n}
    assert (
        manifest.arguments["skip_bad"] == 2
        and manifest.deep[1].vocabulary == Manifest.load(tmp_path / "a").deep[1].vocabulary
    )
    flags = [f"--{name}={value}" for name, value in wrong.items()]
    line = fails(*flags, "--output", tmp_path / "c", "--skip-bad", "1")
    assert "line 303: tips: 'nan' is no finite 32-bit number; more than --skip-bad 1 rows" in line
    assert not (tmp_path / "c").exists()
    wrong = trips.write(
        tmp_path / "more", [{**row, "fare": "x"} if i % 10 == 5 else row for i, row in enumerate(rows)], SCHEMA
    )
    options = Options(**wrong, output=str(tmp_path / "d"), shards=10, processes=1, skip_bad=8)  # of 3 in each piece
    with pytest.raises(UserError, match=r"--skip-bad 8: 9 rows are wrong so far, first .*rows\.csv: line 7: fare: 'x'"):
        convert(options)
    assert "line 17: fare" in capsys.readouterr().out
    text = fails("--dataset", "mnist", "--skip-bad", "1", "--output", str(tmp_path / "c"))
    assert "--skip-bad 1 means nothing to dataset 'mnist'; leave it out, or use --dataset taxi or" in text


def test_rows_that_are_left_out_are_in_no_vocabulary(tmp_path):
    rows = [{"fare": 1, "tips": 1, "seconds": 1, "company": "Blue"} for _ in range(30)]
    rows += [{**rows[0], "fare": "x", "company": "Zed"} for _ in range(9)]
    schema = {**SCHEMA, "label": {"condition": {"greater": ["tips", 1]}, "classes": ["no", "yes"]}}
    manifest = quietly(**trips.write(tmp_path, rows, schema), output=str(tmp_path / "out"), skip_bad=9)
    assert manifest.deep[1].vocabulary == ("Blue",)
