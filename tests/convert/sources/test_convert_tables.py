"""Tables of any kind give the rows of a Python oracle; wrong rows are refused with their place."""

import csv
import dataclasses
import datetime as dt
import gzip
import io
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import write_files
from hypothesis import given, settings
from hypothesis import strategies as st
from staged import SCHEMA, columns, make_schema, read, read_csv, rows, write_csv

from common.errors import UserError
from components.convert.schema import Input, Label
from components.convert.sources import staging
from components.convert.sources.tables import TableSource
from tests.errors import user_error

VALUES = {
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "int": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
    | st.text('",\n\r a\u00e9', max_size=4),
    "bool": st.booleans(),
    "time": st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)),
}
TYPES = columns(**{kind[0]: f"{kind}?" for kind in VALUES}, y="int")
EVERY = make_schema(
    columns=TYPES,
    missing=("", "NA", "-9"),
    filter="y > 0",
    label=Label(classes=("0", "1", "2"), column="y"),
)
table_rows = st.lists(
    st.fixed_dictionaries(
        {kind[0]: st.none() | values for kind, values in VALUES.items()} | {"y": st.integers(0, 2)}
    ),
    min_size=1,
    max_size=12,
)


def oracle(row):
    """Returns the stored row."""
    stored = {name: None if value in EVERY.missing else value for name, value in row.items()}
    if row["t"]:
        since = row["t"].replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        stored["t"] = since // dt.timedelta(seconds=1)
    if row["b"] is not None:
        stored["b"] = str(row["b"]).lower()
    numbers = {name: None for name in "fit" if stored[name] == -9}
    return {**stored, **numbers, "label": row["y"]}


@settings(max_examples=2 * settings.default.max_examples)
@given(
    table=table_rows,
    kind=st.sampled_from(["csv", "jsonl", "parquet"]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    order=st.permutations([*TYPES]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    batch_bytes=st.sampled_from([1, 100, 1 << 20]),
)
@pytest.mark.long
def test_rows_equal_oracle(tmp_path_factory, table, kind, line_end, order, quoting, batch_bytes):
    """The same rows come out of every kind of file, in order; none is lost or added."""
    directory = tmp_path_factory.mktemp("table")
    path = directory / f"t.{kind}"
    texts = [{n: v.isoformat() if n == "t" and v else v for n, v in row.items()} for row in table]
    source = TableSource(name=kind, kind=kind, schema=EVERY)
    if kind == "parquet":
        kinds = (pa.float32(), pa.int64(), pa.string(), pa.bool_(), pa.timestamp("us"), pa.int8())
        arrow = pa.Table.from_pylist(table, pa.schema(zip(TYPES, kinds, strict=True)))
        pq.write_table(arrow.select(order), path, row_group_size=3)
    elif kind == "csv":
        # Python's writer before 3.13 leaves line ends bare that are not its own.
        bare = line_end == "\r" or any("\r" in (row["s"] or "") for row in table)
        cells = [["" if row[name] is None else row[name] for name in order] for row in texts]
        quoting = csv.QUOTE_ALL if bare else quoting
        write_csv(path, [order, *cells], line_end=line_end, quoting=quoting)
    else:
        path.write_text("".join(json.dumps(row) + line_end for row in texts), newline="")
    expected = [oracle(row) for row in table if row["y"] > 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "BATCH_BYTES", batch_bytes)
        patch.setattr(staging, "GROUP_BYTES", batch_bytes)
        if not expected:
            with user_error("no rows"):
                read(source, path, directory)
            return
        examples = read(source, path, directory)
    assert rows(examples) == expected and examples.left_out == len(table) - len(expected)
    assert examples.most.get("s") == max(len((row["s"] or "none").encode()) for row in expected)


HEADER = b"f,i,s,y\n"


@pytest.mark.parametrize(
    ("content", "message"),
    {
        b"\n\n": "empty; it needs a header",
        b"1.5;2;x\n": "its first line '1.5;2;x' names no column",
        b"f,s,y\n1,x,0\n": "has no column 'i' ",
        b"f,i,s,y,\n1,2,x,0,\n": "unknown column ''",
        HEADER: "no rows",
        HEADER + b"1,2,x,0\n1,2\n": "line 3: 2 values",
        HEADER + b'1,2,"a\nb",0\nx,2,x,0\n': "line 4: f: 'x' is",
        HEADER + b"1,2,x,0\n,2,x,0\n": "line 3: f: is missing",
        HEADER + b"1,2,\xff,0\n": "line 2: s: .* UTF-8",
        HEADER + b'1,2,x,0\n1,2,"x,0\n1,2,x,0\n': "line 3: .* has no end",
        HEADER + b'1,2,5" pipe,0\n': "line 2: a quote",
        HEADER + b"1,2,x,0\n\r1,2,\0,0\n": "line 4: a zero byte",
        HEADER + b"1,2,x,0\n1,2,x,\n": "line 3: y: is missing, .*'filter: y IS NOT NULL'",
        gzip.compress(HEADER + b"1,2,x,0\n" * 9999, mtime=0)[:-30]: "cannot be read",
    }.items(),
)
def test_csv_fault_is_named_with_line(tmp_path, content, message):
    with user_error(rf"^{tmp_path}/t\.csv: {message}"):
        read_csv(tmp_path, content)


CELLS = {  # Of each type the stored values of right texts, and wrong texts.
    "int": (
        {" 7\t": 7, "-07": -7, "": None},
        "0x10|+1|1_0|1e3|1.0|NA|-|٣|1\x0b|9223372036854775808",
    ),
    "float": (
        {"+.5e-3 ": np.float32(5e-4), "1e-999": 0, "5.": 5, "1E2": 100, "-9.00": None},
        "0x1p3|infinity|nan|.|1e|\xa01|+-1|1_0|1e39",
    ),
    "bool": ({" YES": "true", "F": "false", "t": "true", "0": "false"}, "maybe|2"),
    "time": (
        {"2024-01-31": 1706659200, "1969-12-31 23:59:59.5": -1, "1970-01-01T01:00+01:00": 0},
        "2024-02-30|2024-01-01T24:00| 2024-02-03",
    ),
}


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.long
def test_cell_is_value_of_type(tmp_path, kind, quote):
    types = columns(f="float", x=f"{kind}?", y="int")
    schema = make_schema(columns=types, missing=("", "-9"))
    content = f"x,f,y\n,1,0\n{quote}%s{quote},1,1\n"
    good, bad = CELLS[kind]
    for text, value in good.items():
        assert rows(read_csv(tmp_path, content % text, schema))[1]["x"] == value
    for text in bad.split("|"):
        with user_error("line 3: x: "):
            read_csv(tmp_path, content % text, schema)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    table=st.lists(st.lists(st.text('",\n\r ax', max_size=4), min_size=2, max_size=2), min_size=1),
    edits=st.lists(
        st.tuples(
            st.integers(0, 40),
            st.integers(0, 3),
            st.sampled_from(['"', '""', "", ",", " ", "\n", "\r", "\r\n", 'a","b"\n"']),
        ),
        max_size=3,
    ),
)
@pytest.mark.long
def test_damaged_csv_loses_no_row(tmp_path_factory, table, edits):
    """A file that is not refused has the rows of Python's strict reader."""
    directory = tmp_path_factory.mktemp("csv")
    body = write_csv(directory / "t.csv", table).read_bytes().decode()
    for start, num_removed, put in edits:
        body = body[:start] + put + body[start + num_removed :]
    schema = make_schema(
        columns=columns(a="string", b="string?"),
        missing=(),
        deep=(Input(column="b", hash_buckets=3),),
        label=Label(classes=("0", "1"), condition="a = b"),
    )
    try:
        read_rows = rows(read_csv(directory, "a,b\n" + body, schema))
    except UserError as error:
        assert "t.csv: " in str(error)
    else:
        strict = [*filter(None, csv.reader(io.StringIO(body, newline=""), strict=True))]
        assert [[row["a"], row["b"] or ""] for row in read_rows] == strict


@pytest.mark.long
def test_large_csv_keeps_order(tmp_path):
    """Rows stay in order, even where several threads read them and an expression has a list."""
    num_rows = 2_000_000  # The threads read 32 MB at a time.
    with open(tmp_path / "t.csv", "w") as file:
        file.write("i,b,s,y\n")
        file.writelines(f"{i},yes,{'x' * 40},1\n" for i in range(num_rows))
    schema = make_schema(
        columns=columns(i="int", b="bool", s="string", y="int"),
        deep=(Input(column="i", numeric="z_score"),),
        filter="s NOT IN ('a', 'b', 'c', 'd', 'e')",
    )
    examples = read(TableSource(name="csv", schema=schema), tmp_path / "t.csv", tmp_path)
    blocks = (block for piece in examples.pieces for block in examples.blocks(piece))
    numbers = np.concatenate([block.columns["i"] for block in blocks])
    np.testing.assert_array_equal(numbers, np.arange(num_rows))


@pytest.mark.parametrize(
    ("line", "fault"),
    {
        '{"f": "1", "y": 0}': 'f: "1" is no finite',
        '{"f": NaN, "y": 0}': "NaN is no number",
        '{"f": 1, "i": 1.0, "y": 0}': "i: 1.0 is no 64-bit",
        '{"f": 1, "s": ["a"], "y": 0}': 's: ."a". is no text',
        '{"f": 1, "f": 2, "y": 0}': "a key is there more",
        '{"f": 1, "s": "\\ud800", "y": 0}': "s: .* is not UTF-8",
        '{"f": 1, "z": 2, "y": 0}': "unknown column 'z'",
        '{"f": 1, "y": 0} {"f": 2, "y": 0}': "Extra data",
    }.items(),
)
def test_json_fault_is_named_with_line(tmp_path, line, fault):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"f": 1, "y": 0}}\n\n{line}\n{{"f": 2, "y": 1}}\n')
    source = TableSource(name="jsonl", kind="jsonl", schema=SCHEMA)
    with user_error(rf"t\.jsonl: line 3: {fault}"):
        read(source, path, tmp_path)
    examples = read(dataclasses.replace(source, skip_bad=1), path, tmp_path)
    assert [row["f"] for row in rows(examples)] == [1, 2]


def test_wrong_rows_are_skipped(tmp_path):
    bad = {3: "x,1,a,0", 40: "1,1", 70: "1,1,a,", 200: '1,"q\n",z,0'}
    lines = [bad.get(i, f"{i},1,{'é' * (i % 3)},1") for i in range(300)]
    content = HEADER + "\n".join(lines).encode()
    examples = read_csv(tmp_path, content, skip_bad=4)
    assert [row["f"] for row in rows(examples)] == [i for i in range(300) if i not in bad]
    places = {text.split(": ")[1] for text in examples.skipped}
    assert places == {f"line {i + 2}" for i in bad}
    with user_error(r"t\.csv: line 202: i: .*; more than --skip-bad 3 rows"):
        read_csv(tmp_path, content, skip_bad=3)


def test_files_of_folder(tmp_path):
    """Files have orders of columns, delimiters, byte order marks and packing of their own."""
    zstd = pa.BufferOutputStream()
    with pa.CompressedOutputStream(zstd, "zstd") as file:
        file.write(HEADER + b"7,8,w,0\n")
    packed = gzip.compress(b"y\ts\ti\tf\n") + gzip.compress(b"1\tz\t6\t5\n")
    files = {
        "a.csv": b'\xef\xbb\xbf"f",i,s,y\r\n1,2,"a,b",0\r\n\r\n3,4,\xef\xbb\xbf,1',
        "2023/b.TSV.gz": packed,
        "c.csv.zst": zstd.getvalue().to_pybytes(),
        "d.csv": HEADER,
        "_old.csv": "?",
    }
    folder = write_files(tmp_path / "table [1]", files)
    source = TableSource(name="csv", schema=SCHEMA)
    values = [(row["f"], row["s"]) for row in rows(read(source, folder, tmp_path))]
    assert values == [(5, "z"), (1, "a,b"), (3, "\ufeff"), (7, "w")]
    assert os.listdir(tmp_path / "work") == ["train.arrow"]
    write_files(folder, {"c.csv": HEADER})
    with user_error(r"c\.csv\.zst: is packed, and c\.csv beside it is not"):
        source.files(str(folder))


def test_file_changed_while_read_is_refused(tmp_path, monkeypatch):
    add_csv = staging.Staging.add_csv

    def add_and_touch(stage, path, *rest):
        add_csv(stage, path, *rest)
        os.utime(path, ns=(0, 0))

    monkeypatch.setattr(staging.Staging, "add_csv", add_and_touch)
    with user_error(r"t\.csv: it has changed or gone since"):
        read_csv(tmp_path, HEADER + b"1,2,x,0\n")


def test_uncomputable_filter_names_row(tmp_path):
    content = HEADER + b"1,1,x,0\n" * 5 + b"1,100,x,0\n" + b"1,1,x,0\n" * 5
    with user_error(r"t\.csv: line 7: filter: cannot be computed"):
        read_csv(tmp_path, content, make_schema(filter="1 // (i - 100) < 5"))
