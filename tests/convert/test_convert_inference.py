"""A proposed schema says what is in a table, and can be used as it is."""

import datetime as dt
import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import yaml
from dataset_files import convert_to, write_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.convert.__main__ import main
from components.convert.schema import TableSchema
from tests.errors import user_error

DRAW = np.random.default_rng(0)
KINDS = {  # Of each the values of a column.
    "float": DRAW.normal(size=90).astype("f4").tolist(),
    "count": DRAW.integers(-(2**40), 2**40, 90).tolist(),
    "name": [f"trip-{i}" for i in range(90)],
    "nothing": [None] * 90,
    "text": ["Café", "Öl", "NO", "1", "null"] * 18,
    "truth": [True, False] * 45,
    "day": [dt.date(2024, 1, 31) - dt.timedelta(400 * i) for i in range(90)],
    "time": [dt.datetime(2024, 1, 1) + dt.timedelta(i, i / 3) for i in range(90)],
    "signs": [1, -1] * 45,
    "classes": [1, 2, 3] * 30,
}
DRAWS = DRAW.random(90)
REGRESSION, CLASSIFICATION = ("float", "count", "signs"), ("truth", "classes")
HEADERS = ["Trip Seconds", "2nd", "Größe", "label", "a.b", 'say "a, b"', "# no: yes", "-", "id"]


def write(columns, path):
    """Writes a table as the name of the file says."""
    form = {".csv": "csv", ".jsonl": "json", ".parquet": "parquet"}[path.suffix]
    duckdb.from_arrow(pa.table(columns)).query("rows", f"COPY rows TO '{path}' (FORMAT {form})")


def infer(directory, dataset, source, *flags):
    """Returns the path of the proposed file."""
    path = directory / "schema.yaml"
    options = ("--dataset", dataset, "--source", str(source), "--infer-schema", str(path))
    assert main([*options, *flags]) == 0
    return path


@settings(
    max_examples=settings.default.max_examples // 4, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    dataset=st.sampled_from(["csv", "jsonl", "parquet"]),
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=8),
    headers=st.permutations(HEADERS),
    label=st.sampled_from(REGRESSION + CLASSIFICATION),
    gaps=st.sampled_from([0, 0.3]),
)
@pytest.mark.long
def test_proposal_converts_table(tmp_path_factory, dataset, kinds, headers, label, gaps):
    """A proposed schema converts its table, whatever columns, headers and gaps that has."""
    root = tmp_path_factory.mktemp("table")
    columns = {
        header: [
            None if draw < gaps else value for draw, value in zip(DRAWS, KINDS[kind], strict=True)
        ]
        for header, kind in zip(headers, [label, "float", *kinds], strict=False)
    }
    source = root / f"t.{dataset}"
    write(columns, source)
    path = infer(root, dataset, source, "--label", headers[0])
    manifest = convert_to(root / "out", dataset=dataset, source=source, schema=path, shards=1)
    examples = sum(split.examples for split in manifest.splits.values())
    assert examples == sum(value is not None for value in columns[headers[0]])
    assert (
        " 90 rows;" in path.read_text(encoding="utf-8") and len(TableSchema.load(path).columns) > 1
    )
    assert manifest.task == ("regression" if label in REGRESSION else "classification")


@pytest.fixture
def propose(tmp_path):
    """Writes a table as a file of a kind; returns the path of the schema proposed for it."""

    def run(columns, kind, *flags):
        write(columns, tmp_path / f"t.{kind}")
        return infer(tmp_path, kind, tmp_path / f"t.{kind}", *flags)

    return run


def test_proposed_columns_and_inputs(propose):
    table = {
        "tip": ["no", "yes", "no"] * 20,
        "fare": [2.5, None, 4.0, 1.0] * 15,
        "a b": [1, 2] * 30,
        "A_b": range(0, 6000, 100),
        "trip_id": range(60),
        "stops": [[1] * (i % 3) for i in range(60)],
    }
    path = propose(table, "parquet")
    text = path.read_text()
    for pattern in (
        '  tip: {type: string}  # about 2 different, 0.0% missing, such as "no"',
        "  fare: {type: float, default: 2.5, indicator: true}  # about 3 different, 25.0% missing, "
        "1 to 4; 2.5 takes the place of a missing value",
        "  - {column: fare, numeric: z_score}",
        "  - {column: A_b_, numeric: z_score}",
        r"  # trip_id: {type: int}  # .*; left out: hardly a value comes twice",
        "  # stops: .*; left out: no type is proposed for",
    ):
        assert re.search(f"^{pattern}", text, re.MULTILINE), pattern
    with user_error(r"schema\.yaml: line \d+: label: 'TODO' is not a mapping"):
        TableSchema.load(path)


@pytest.mark.parametrize(
    ("flags", "message"),
    {
        "t.csv --label tpi": "--label: unknown column 'tpi'; did you mean 'tip'",
        "t.csv --label name": "--label name: needs a number, or 2 to 100 classes (about 1",
        "t.csv --label tip": "has no column that a model could learn from",
        "t.csv --shards 3": "--shards=3 means nothing to --infer-schema",
        "t.csv --dataset mnist": "--dataset mnist means nothing to --infer-schema",
        "t.csv --infer-schema t.csv": "t.csv: is there already; give another name",
        "short.csv": "short.csv: ",
        "open.csv": "open.csv: ",
        "empty.csv": "empty.csv: no rows",
    }.items(),
)
def test_proposal_is_refused(tmp_path, monkeypatch, fails, flags, message):
    monkeypatch.chdir(tmp_path)
    write({"tip": ["no", "yes"] * 60, "name": [f"n{i}" for i in range(120)]}, tmp_path / "t.csv")
    tables = {"short.csv": "a,b\n1,2\n3\n", "open.csv": 'a,b\n"1,2\n', "empty.csv": "a,b\n"}
    write_files(tmp_path, tables)
    known = "--dataset csv --infer-schema schema.yaml --source"
    assert message in fails(*known.split(), *flags.split())
    assert not (tmp_path / "schema.yaml").exists()


@pytest.mark.parametrize(
    ("values", "pattern"),
    {
        # Namibia's code is a country; in a column of numbers the same text is a gap.
        "NA|DE|FR": "{type: string, default: ''}  # about 3 different, 0.0% miss",
        "NA|5|7": "{type: int, default: 0, .*  # .*, 33.3% missing",
        "01234|99999|10000": "{type: string}  # about 3 different",
        "00.5|1.5|7": "{type: string}  # about 3 different",
        "1,5|-2.000,25|3,75": '.*"; a number has a point and no comma',
        "31.12.2023|1/2/2024|01.02.2024 10:15": '.*"; a time is written 2024-01-31',
        "yes|No|YES": '.*"; the type bool reads it too',
        "it was a good ride|the car was very late|ok": '.*"; if it is free text, take words',
        "Bonn|Ulm|yes": '.*"$',
    }.items(),
)
def test_texts_are_read_as_meant(propose, values, pattern):
    table = {"y": ["a", "b", "c"] * 20, "x": values.split("|") * 20}
    text = propose(table, "csv", "--label", "y").read_text()
    assert re.search(f"^  x: {pattern}", text, re.MULTILINE), text


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiter_is_proposed(tmp_path, delimiter):
    path = tmp_path / "t.csv"
    text = "size,colour\n" + '1.5,red\n2.5,"green; dark|\t"\n' * 30
    path.write_text(text.replace(",", delimiter))
    schema = yaml.safe_load(infer(tmp_path, "csv", path).read_text())
    assert schema["delimiter"] == delimiter
    assert schema["columns"] == {"size": {"type": "float"}, "colour": {"type": "string"}}


def test_folders_and_bytes_of_parquet_are_columns(tmp_path, bucket):
    for year in ("2023", "2024"):
        folder = bucket / f"trips/year={year}"
        folder.mkdir(parents=True)
        write({"colour": [b"red", b"blue"] * 9}, folder / "t.parquet")
    schema = yaml.safe_load(infer(tmp_path, "parquet", "gs://demo/trips").read_text())
    assert schema["columns"] == {"colour": {"type": "string"}, "year": {"type": "string"}}
