"""A proposed schema says what is in a table, and can be used as it is."""

import contextlib
import datetime as dt
import gzip
import io
import pathlib
import re

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from components.convert.__main__ import main
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.schema import load

KINDS = {  # Of each a value, from a generator and the number of its row.
    "float": lambda r, i: float(np.float32(r.normal())),
    "category": lambda r, i: int(r.integers(5)),
    "count": lambda r, i: int(r.integers(-(2**40), 2**40)),
    "huge": lambda r, i: float(r.normal() * 1e30),
    "row": lambda r, i: i,
    "name": lambda r, i: f"trip-{i}",
    "same": lambda r, i: "a",
    "nothing": lambda r, i: None,
    "text": lambda r, i: ["Café", "Öl", "NO", "1", "null"][r.integers(5)],
    "truth": lambda r, i: bool(r.integers(2)),
    "day": lambda r, i: dt.date(2024, 1, 31) - dt.timedelta(int(r.integers(40_000))),
    "time": lambda r, i: dt.datetime(2024, 1, 1) + dt.timedelta(seconds=float(r.random() * 1e9)),
}
LABELS = {
    "float": KINDS["float"],
    "truth": KINDS["truth"],
    "two": lambda r, i: ["no", "yes"][r.integers(2)],
    "signs": lambda r, i: int(r.integers(2)) * 2 - 1,
    "classes": lambda r, i: int(r.integers(1, 4)),
    "count": KINDS["count"],
}
HEADERS = [
    "fare",
    "Trip Seconds",
    "2nd",
    "Größe",
    "label",
    "a.b",
    "x[0]",
    'say "a, b"',
    "# no: yes",
    "-",
    "id",
    "null",
]


def write(columns: dict[str, list], path: pathlib.Path) -> None:
    """Writes a table as the name of the file says."""
    form = {".csv": "csv", ".jsonl": "json", ".parquet": "parquet"}[path.suffix]
    duckdb.from_arrow(pa.table(columns)).query("rows", f"COPY rows TO '{path}' (FORMAT {form})")


def run(*flags: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([str(flag) for flag in flags]) == 0


def infer(source: pathlib.Path, *flags: object) -> pathlib.Path:
    """Returns the path of the proposed file."""
    path = source.with_name("schema.yaml")
    path.unlink(missing_ok=True)
    dataset = source.name.removesuffix(".gz").rpartition(".")[2].replace("tsv", "csv")
    run("--dataset", dataset, "--source", source, "--infer-schema", path, *flags)
    return path


@settings(
    max_examples=settings.default.max_examples // 4, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    dataset=st.sampled_from(["csv", "jsonl", "parquet"]),
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=8),
    headers=st.permutations(HEADERS),
    label=st.sampled_from(sorted(LABELS)),
    seed=st.integers(0, 99),
    gaps=st.sampled_from([0, 0.3]),
)
def test_proposal_converts_table(tmp_path_factory, dataset, kinds, headers, label, seed, gaps):
    """The schema that is proposed for a table converts it, whatever kinds of columns, headers and gaps it has."""
    root, draw, rows = tmp_path_factory.mktemp("table"), np.random.default_rng(seed), 90
    makers = [LABELS[label], KINDS["float"], *(KINDS[kind] for kind in kinds)]
    columns = {
        header: [None if draw.random() < gaps else make(draw, i) for i in range(rows)]
        for header, make in zip(headers, makers, strict=False)
    }
    source = root / f"t.{dataset}"
    write(columns, source)
    path = infer(source, "--label", headers[0])
    schema, text = load(path), path.read_text(encoding="utf-8")
    flags = {"dataset": dataset, "source": str(source), "schema": str(path)}
    with contextlib.redirect_stdout(io.StringIO()):
        manifest = convert(Options(**flags, output=str(root / "out"), shards=1))
    examples = sum(split.examples for split in manifest.splits.values())
    assert examples == sum(value is not None for value in columns[headers[0]])
    assert f" {rows} rows;" in text and len(schema.columns) > 1
    assert manifest.task == (
        "regression" if label in ("float", "count", "signs") else "classification"
    )


TRIPS = {
    "tip": ["no", "yes", "no"] * 20,
    "fare": [2.5, None, 4.0, 1.0] * 15,
    "hour": [*range(12)] * 5,
    "seconds": list(range(0, 6000, 100)),
    "trip_id": list(range(60)),
    "payment": ["cash", "card", None] * 20,
    "comment": [f"It was a nice trip, number {i}" for i in range(60)],
    "start": [dt.datetime(2024, 1, 31, 12, i) for i in range(60)],
    "paid": [True, False] * 30,
    "stops": [[1] * (i % 3) for i in range(60)],
}


def test_proposed_columns_and_inputs(tmp_path):
    write(TRIPS, tmp_path / "t.parquet")
    text = infer(tmp_path / "t.parquet", "--label", "tip").read_text()
    for pattern in (
        '  tip: {type: string}  # about 2 different, 0.0% missing, such as "no"',
        "  fare: {type: float, default: 0.0}  # about 3 different, 25.0% missing, 1 to 4",
        r"label: {column: tip, classes: \['no', 'yes'\]}",
        "  - {column: fare, numeric: z_score}",
        "  - {column: hour, vocabulary: 1000, embedding: 8}",
        "  - {column: seconds, numeric: z_score}",
        "  - {column: payment, vocabulary: 2}",
        "  - {column: start, numeric: z_score}",
        "  - {column: paid, vocabulary: 2}",
        r"  # trip_id: {type: int}  # about 6\d different, 0\.0% missing, 0 to 59; left out: "
        r"hardly a value comes twice",
        r'  start: {type: time}  # about [56]\d different, 0\.0% missing, such as "2024-01-31 '
        r'12:00:00"',
        r"  # comment: {type: string} .*; left out: hardly a value comes twice",
        "  # stops: .*; left out: no type is proposed for",
    ):
        assert re.search(f"^{pattern}", text, re.MULTILINE), pattern


def test_label_with_gaps_filters_rows(tmp_path):
    y = [None if not i % 5 else i % 2 for i in range(60)]
    write({"x": np.arange(60) / 7, "y": y}, tmp_path / "t.parquet")
    source = {"dataset": "parquet", "source": str(tmp_path / "t.parquet")}
    path = infer(tmp_path / "t.parquet", "--label", "y")
    manifest = convert(Options(**source, schema=str(path), output=str(tmp_path / "out")))
    histogram = np.sum([split.class_histogram for split in manifest.splits.values()], axis=0)
    assert histogram.tolist() == [y.count(0), y.count(1)]


def test_proposal_without_label_needs_edit(tmp_path):
    write(TRIPS, tmp_path / "t.parquet")
    path = infer(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"schema\.yaml: line \d+: label: 'TODO' is not a mapping"):
        load(path)
    text = path.read_text().replace("TODO", "{column: tip, classes: ['no', 'yes']}")
    path.write_text(text.replace("  - {column: tip, vocabulary: 2}\n", ""))
    assert load(path).label.column == "tip"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--label", "tpi"), "--label: unknown column 'tpi'; did you mean 'tip'"),
        (("--label", "name"), "--label name: needs a number, or 2 to 100 classes (about 1"),
        (("--shards", "3"), "--shards=3 means nothing to --infer-schema"),
        (
            ("--dataset", "mnist"),
            "--dataset mnist means nothing to --infer-schema; it takes --dataset csv or jsonl or",
        ),
        (("--infer-schema", "{source}"), "t.parquet: is there already; give another name"),
        (("--source", "{source}x"), "t.parquetx: no such file"),
        (("--infer-schema", "{source}/s.yaml"), "t.parquet/s.yaml: Not a directory"),
    ],
)
def test_proposal_is_refused(tmp_path, fails, flags, message):
    source = tmp_path / "t.parquet"
    write({"tip": ["no", "yes"] * 60, "name": [f"n{i}" for i in range(120)]}, source)
    options = (
        "--dataset",
        "parquet",
        "--source",
        source,
        "--infer-schema",
        tmp_path / "schema.yaml",
    )
    assert message in fails(*options, *(flag.format(source=source) for flag in flags))
    assert not (tmp_path / "schema.yaml").exists()


def test_proposal_needs_input(tmp_path, fails):
    write({"a": [1, 2] * 9, "same": [1] * 18}, tmp_path / "t.parquet")
    flags = ("--dataset", "parquet", "--source", tmp_path / "t.parquet", "--label", "a")
    assert "t.parquet: has no column that a model could learn from" in fails(
        *flags, "--infer-schema", tmp_path / "s"
    )
    assert "--label means nothing without --infer-schema" in fails(
        *flags, "--output", tmp_path / "out"
    )


def propose(directory: pathlib.Path, **columns: list) -> str:
    """Returns the proposal for a CSV file of these columns and a label."""
    write({"y": ["a", "b", "c"] * 20, **columns}, directory / "t.csv")
    return infer(directory / "t.csv", "--label", "y").read_text()


def test_mark_is_value_among_texts(tmp_path):
    """Namibia's code is a country; in a column of numbers the same text is a gap."""
    text = propose(tmp_path, country=["NA", "DE", "FR"] * 20)
    assert "\n  country: {type: string, default: ''}  # about 3 different, 0.0% missing" in text
    assert "\nmissing: ['']\n" in text
    text = propose(tmp_path, fare=["NA", "0", "0", *map(str, range(57))])
    assert re.search(
        r"\n  fare: {type: int, default: 0}  # about \d+ different, 1\.7% missing, 0 to 56", text
    )
    assert "\nmissing: ['', NA, " in text


def test_leading_zeros_are_codes(tmp_path):
    text = propose(tmp_path, zip=["01234", "99999", "10000"] * 20, part=["00.5", "1.5", "7"] * 20)
    assert "\n  zip: {type: string}  # about 3 different, 0.0% missing, such as " in text
    assert "\n  part: {type: string}  # about 3 different" in text


def test_names_differ_in_more_than_case(tmp_path):
    propose(tmp_path, **{"a b": [1, 2] * 30, "A_b": [i / 7 for i in range(60)]})
    assert [*load(tmp_path / "schema.yaml").columns] == ["y", "a_b", "A_b_"]


@pytest.mark.parametrize("text", ["a,b\n1,2\n3\n", 'a,b\n"1,2\n', "a;b\n1;2\n", "a,b\n"])
def test_damaged_file_is_refused(tmp_path, fails, text):
    (tmp_path / "t.csv").write_text(text)
    flags = (
        "--dataset",
        "csv",
        "--source",
        tmp_path / "t.csv",
        "--infer-schema",
        tmp_path / "s.yaml",
    )
    assert "t.csv: " in fails(*flags)


def test_packed_file_with_odd_name(tmp_path):
    rows = "".join(f"{i % 3}\t{i / 7}\n" for i in range(60))
    path = tmp_path / "it's [a].tsv.gz"
    path.write_bytes(gzip.compress(f"y\tx\n{rows}".encode()))
    text = infer(path, "--label", "y").read_text()
    assert "label: {column: y, classes: ['0', '1', '2']}" in text and "x: {type: float}" in text


def test_table_in_bucket(tmp_path, bucket):
    write({"y": ["a", "b", "c"] * 20, "x": [*range(60)]}, bucket / "t.csv")
    flags = (
        "--dataset",
        "csv",
        "--source",
        "gs://demo/t.csv",
        "--infer-schema",
        tmp_path / "s.yaml",
    )
    run(*flags, "--label", "y")
    assert load(tmp_path / "s.yaml").origin == "t.csv"
