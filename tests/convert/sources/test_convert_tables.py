"""Tables of any kind give the rows that a Python oracle gives, and what is wrong is refused with its place."""

import csv
import dataclasses
import datetime as dt
import gzip
import io
import json
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from staged import SCHEMA, columns, make_schema, read, read_csv, rows, write_csv

from common.errors import UserError
from components.convert.schema import Input, Label
from components.convert.sources import staging, text_rows
from components.convert.sources.tables import ParquetSource, TextSource

# Rows of every type, as three kinds of files and as Python has them.

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6) | st.text(
    '",\n\r a\u00e9', max_size=4
)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
times = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
VALUES = {
    "float": floats,
    "int": st.integers(-(2**63), 2**63 - 1),
    "string": texts,
    "bool": st.booleans(),
    "time": times,
}
TYPES = columns(**{kind[0]: f"{kind}?" for kind in VALUES}, y="int")
EVERY = make_schema(
    columns=TYPES, missing=("", "NA", "-9"), filter="y > 0", label=Label(classes=("0", "1", "2"), column="y")
)
table_rows = st.lists(
    st.fixed_dictionaries({kind[0]: st.none() | values for kind, values in VALUES.items()} | {"y": st.integers(0, 2)}),
    min_size=1,
    max_size=12,
)


def oracle(row: dict) -> dict:
    """Returns the stored row."""
    since = row["t"] and row["t"].replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    stored = {
        "f": None if row["f"] == -9 else row["f"],
        "i": None if row["i"] == -9 else row["i"],
        "s": None if row["s"] in EVERY.missing else row["s"],
        "b": None if row["b"] is None else str(row["b"]).lower(),
        "t": None if row["t"] is None or since // dt.timedelta(seconds=1) == -9 else since // dt.timedelta(seconds=1),
    }
    return {**stored, "y": row["y"], "label": row["y"]}


@settings(max_examples=2 * settings.default.max_examples)
@given(
    table=table_rows,
    kind=st.sampled_from(["csv", "jsonl", "parquet"]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    order=st.permutations([*TYPES]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    batch_bytes=st.sampled_from([1, 100, 1 << 20]),
)
def test_staged_rows_are_the_oracles(tmp_path_factory, table, kind, line_end, order, quoting, batch_bytes):
    """Property: the same rows come out of every kind of file, in order, with labels; none is lost or invented."""
    directory = tmp_path_factory.mktemp("table")
    path = directory / f"t.{kind}"
    if kind == "parquet":
        arrow = {
            "f": pa.float32(),
            "i": pa.int64(),
            "s": pa.string(),
            "b": pa.bool_(),
            "t": pa.timestamp("us"),
            "y": pa.int8(),
        }
        schema = pa.schema([(name, arrow[name]) for name in order])
        pq.write_table(pa.Table.from_pylist(table, schema), path, row_group_size=3)
        source = ParquetSource(schema=EVERY)
    else:
        lines = [{n: v.isoformat() if n == "t" and v else v for n, v in row.items()} for row in table]
        if kind == "csv":
            # Python's writer before 3.13 leaves line ends bare that are not its own.
            bare = line_end == "\r" or any("\r" in (row["s"] or "") for row in table)
            quoting = csv.QUOTE_ALL if bare else quoting
            cells = [["" if row[name] is None else row[name] for name in order] for row in lines]
            write_csv(path, [order, *cells], line_end=line_end, quoting=quoting)
        else:
            path.write_text("".join(json.dumps(row) + line_end for row in lines), newline="")
        source = TextSource(name=kind, schema=EVERY, json=kind == "jsonl")
    expected = [oracle(row) for row in table if row["y"] > 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "BATCH_BYTES", batch_bytes)
        patch.setattr(staging, "GROUP_BYTES", batch_bytes)
        if not expected:
            with pytest.raises(UserError, match="no rows"):
                read(source, path, directory)
            return
        examples = read(source, path, directory)
    assert rows(examples) == expected and examples.left_out == len(table) - len(expected)
    assert examples.most.get("s") == max(len((row["s"] or "none").encode()) for row in expected)


# What is wrong in text files.

HEADER = b"f,i,s,y\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n\n", "empty; it needs a header"),
        (b"1.5;2;x\n", r"its first line '1.5;2;x' names no column of the schema \(f, i, s, y\); .* is not ','"),
        (b"f,s,y\n1,x,0\n", r"has no column 'i' \(it has 'f', 's', 'y'\)"),
        (b"f,i,s,y,\n1,2,x,0,\n", "unknown column ''.*add it to the schema, or 'other_columns: ignore'"),
        (b'f,"i\ni",s,y\n1,2,x,0\n', r"unknown column 'i\\ni'"),
        (b"f,f,i,s,y\n1,1,2,x,0\n", "column 'f' is there more than once"),
        (HEADER, "no rows"),
        (HEADER + b"1,2,x,0\n1,2\n", "line 3: 2 values; the header has 4"),
        (HEADER + b"1,2,x,0,\n", "line 2: 5 values; the header has 4"),
        (HEADER + b'1,2,"a\nb",0\nx,2,x,0\n', "line 4: f: 'x' is no finite 32-bit number"),
        (HEADER + b"1,9223372036854775808,x,0\n", "line 2: i: '9223372036854775808' is no 64-bit whole number"),
        (HEADER + b"1,2,x,0\r\n-inf,2,x,0\n", "line 3: f: '-inf' is no finite"),
        (HEADER + b"1,2,x,0\n,2,x,0\n", "line 3: f: is missing, and the schema has no default"),
        (HEADER + b"1,2,\xff,0\n", r"line 2: s: b'\\xed\\xb3\\xbf' is not UTF-8"),
        (HEADER + b'1,2,x,0\n1,2,"x,0\n1,2,x,0\n', "line 3: the value that a quote opens here has no end"),
        (HEADER + b'1,2,5" pipe,0\n', "line 2: a quote in a value that does not start with one, or text .* twice"),
        (HEADER + b'1,2, "x",0\n', "line 2: a quote in a value"),
        (HEADER + b'1,2,"a"b,0\n', "line 2: .* text behind a closing quote"),
        (HEADER + b'1,2,"a\n\r\n\r",0\n1,2,"a"b,0\n', "line 6: a quote in a value"),
        (b'f,i,s,"y"z\n1,2,x,0\n', "line 1: is no CSV: .* expected after"),
        (HEADER + b"1,2,x,0\n\r1,2,\0,0\n", "line 4: a zero byte; is it text in UTF-8"),
        (HEADER + b"1,2,x,0\n1,2,x,\n", "line 3: y: is missing, and nothing can be learnt.*'filter: y IS NOT NULL'"),
        (HEADER + b"1,2,x,2\n", r"line 2: y: '2' is no class \(known: 0 to 1\)"),
        (gzip.compress(HEADER + b"1,2,x,0\n" * 9999, mtime=0)[:-30], r"cannot be read \("),
        (b"\x1f\x8b\x08\xff\xfe\n1,2,x\n", r"cannot be read \(Compressed file ended"),
    ],
)
def test_csv_fault_is_told_with_its_line(tmp_path, content, message):
    with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path))}/t\.csv: {message}") as error:
        read_csv(tmp_path, content)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("i", {" 7\t": 7, "-07": -7, "": None}, ["0x10", "0X1f", "+1", "1_0", "1e3", "1.0", "NA", "-", "٣", "1\x0b"]),
        (
            "f",
            {"+.5e-3 ": np.float32(5e-4), "1e-999": 0, "5.": 5, "1E2": 100},
            ["0x1p3", "infinity", "nan", ".", "1e", "\xa01", "+-1", "1_0", "1e39"],
        ),
    ],
)
def test_csv_number_is_plain_decimal_or_refused(tmp_path, kind, good, bad, quoted):
    for text in [*good, *bad]:
        row = {"f": "1", "i": "0", kind: f'"{text}"' if quoted else text}
        table = f"f,i,s,y\n1,2,x,0\n{row['f']},{row['i']},x,1\n"
        if text in good:
            assert rows(read_csv(tmp_path, table))[1][kind] == good[text]
        else:
            with pytest.raises(UserError, match=f"line 3: {kind}: "):
                read_csv(tmp_path, table)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    table=st.lists(st.lists(st.text('",\n\r ax', max_size=4), min_size=2, max_size=2), min_size=1, max_size=6),
    data=st.data(),
)
def test_damaged_csv_loses_no_row_silently(tmp_path_factory, table, data):
    """Property: what is not refused has the rows that Python's strict reader finds."""
    directory = tmp_path_factory.mktemp("csv")
    body = write_csv(directory / "t.csv", table).read_bytes().decode()
    for _ in range(data.draw(st.integers(0, 3))):
        start, end = sorted(data.draw(st.integers(0, len(body))) for _ in range(2))
        put = data.draw(st.sampled_from(['"', '""', "", ",", " ", "\n", "\r", "\r\n", body[start:end] + '"']))
        body = body[:start] + put + body[data.draw(st.sampled_from([start, start + 1, end])) :]
    schema = make_schema(
        columns=columns(a="string", b="string?"),
        missing=(),
        deep=(Input(column="b", words=3),),
        label=Label(classes=("0", "1"), condition="a = b"),
    )
    try:
        found = rows(read_csv(directory, "a,b\n" + body, schema))
    except UserError as error:
        assert "t.csv: " in str(error) or "no words" in str(error)
    else:
        strict = [*filter(None, csv.reader(io.StringIO(body, newline=""), strict=True))]
        assert [[row["a"], row["b"] or ""] for row in found] == strict


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"f": "1", "y": 0}', 'f: "1" is no finite 32-bit number'),
        ('{"f": NaN, "y": 0}', "NaN is no number in JSON"),
        ('{"f": 1e39, "y": 0}', "f: '1e[+]39' is no finite"),
        ('{"f": 1, "i": 1.0, "y": 0}', "i: 1.0 is no 64-bit whole number"),
        ('{"f": 1, "i": 9223372036854775808, "y": 0}', "i: '9223372036854775808' is no 64-bit"),
        ('{"f": 1, "i": true, "y": 0}', "i: true is no 64-bit"),
        ('{"f": 1, "s": ["a"], "y": 0}', 's: ."a". is no text'),
        ('{"f": 1, "f": 2, "y": 0}', "a key is there more than once"),
        ('{"f": 1, "s": "\\ud800", "y": 0}', "s: .* is not UTF-8"),
        ('{"f": 1, "s": "\0", "y": 0}', "Invalid control character"),
        ('{"f": 1, "z": 2, "y": 0}', "unknown column 'z'"),
        ('{"f": 1', "Expecting"),
        ("null", "'null' is no JSON object"),
        ('{"f": 1, "y": 0} {"f": 2, "y": 0}', "Extra data"),
        ("[" * 99_999, "maximum recursion depth"),
        ('{"y": 0}', "f: is missing, and the schema has no default"),
        ('{"f": 1}', "y: is missing, and nothing can be learnt"),
    ],
)
def test_json_fault_is_told_with_its_line(tmp_path, line, fault):
    (tmp_path / "t.jsonl").write_text(f'{{"f": 1, "y": 0}}\n\n{line}\n{{"f": 2, "y": 1}}\n')
    source = TextSource(name="jsonl", schema=SCHEMA, json=True)
    with pytest.raises(UserError, match=rf"t\.jsonl: line 3: {fault}") as error:
        read(source, tmp_path / "t.jsonl", tmp_path)
    assert "\n" not in str(error.value)
    examples = read(dataclasses.replace(source, skip_bad=1), tmp_path / "t.jsonl", tmp_path)
    assert [row["f"] for row in rows(examples)] == [1, 2] and len(examples.skipped) == 1


def test_wrong_rows_are_skipped_up_to_a_number(tmp_path):
    bad = {3: "x,1,a,0", 40: "1,1", 70: "1,1,a,", 200: '1,"q\n",z,0'}
    lines = [bad.get(i, f"{i},1,{'é' * (i % 3)},1") for i in range(300)]
    content = HEADER + "\n".join(lines).encode()
    examples = read_csv(tmp_path, content, skip_bad=4)
    assert [row["f"] for row in rows(examples)] == [i for i in range(300) if i not in bad]
    places = [text.split(": ", 2)[1:] for text in examples.skipped]
    assert {place for place, _ in places} == {"line 5", "line 42", "line 72", "line 202"}
    with pytest.raises(UserError, match=r"t\.csv: line 202: i: 'q\\n' is no .*; more than --skip-bad 3 rows are wrong"):
        read_csv(tmp_path, content, skip_bad=3)


def test_files_may_have_other_orders_marks_and_packing(tmp_path):
    folder = tmp_path / "table [1]"
    (folder / "2023").mkdir(parents=True)
    (folder / "a.csv").write_bytes(b"\xef\xbb\xbff,i,s,y\r\n1,2,x,0\r\n\r\n3,4,\xef\xbb\xbf,1")
    (folder / "2023" / "b.TSV.gz").write_bytes(gzip.compress(b"y\ts\ti\tf\n") + gzip.compress(b"1\tz\t6\t5\n"))
    with pa.CompressedOutputStream(str(folder / "c.csv.zst"), "zstd") as file:
        file.write(b"f,i,s,y\n7,8,w,0\n")
    (folder / "d.csv").write_bytes(HEADER)
    (folder / "_old.csv").write_bytes(b"?")
    os.symlink(folder / "2023", tmp_path / "linked")
    (folder / "e.csv.bz2").write_bytes(b"?")
    source = TextSource(name="csv", schema=SCHEMA)
    found = rows(read(source, folder, tmp_path))
    assert [row["f"] for row in found] == [5, 1, 3, 7] and [row["s"] for row in found] == ["z", "x", "\ufeff", "w"]
    assert [row["f"] for row in rows(read(source, tmp_path / "linked", tmp_path))] == [5]
    assert not [name for name in os.listdir(tmp_path / "work") if name.startswith("unpacked")]
    (folder / "c.csv").write_bytes(HEADER)
    with pytest.raises(UserError, match=r"c\.csv\.zst: is packed, and c\.csv beside it is not"):
        source.files(str(folder))


def test_byte_order_mark_may_stand_before_a_quote(tmp_path):
    content = b'\xef\xbb\xbf"f",i,s,y\n1,2,"a,b",0\n'
    assert rows(read_csv(tmp_path, content)) == [{"f": 1, "i": 2, "s": "a,b", "y": 0, "label": 0}]


def test_files_left_out_are_named(tmp_path, capsys):
    for name in ("a.csv", "b.csv.xz", "c.txt"):
        (tmp_path / name).write_bytes(HEADER + b"1,2,x,0\n")
    os.mkfifo(tmp_path / "pipe.csv")
    read(TextSource(name="csv", schema=SCHEMA), tmp_path, tmp_path)
    assert f"{tmp_path}: left out: b.csv.xz, c.txt, pipe.csv (only *.csv or *.tsv files" in capsys.readouterr().out


def test_file_changed_while_read_is_refused(tmp_path, monkeypatch):
    add_csv = staging.Staging.add_csv
    monkeypatch.setattr(
        staging.Staging, "add_csv", lambda stage, path, *rest: (add_csv(stage, path, *rest), os.utime(path, ns=(0, 0)))
    )
    with pytest.raises(UserError, match=r"t\.csv: it has changed or gone since"):
        read_csv(tmp_path, HEADER + b"1,2,x,0\n")


def test_filter_that_cannot_be_computed_names_the_row(tmp_path):
    schema = make_schema(filter="1 // (i - 100) < 5")
    content = HEADER + b"1,1,x,0\n" * 5 + b"1,100,x,0\n" + b"1,1,x,0\n" * 5
    with pytest.raises(UserError, match=r"t\.csv: line 7: .*Division by zero"):
        read_csv(tmp_path, content, schema)
    assert len(rows(read_csv(tmp_path, content, schema, skip_bad=1))) == 10


def test_file_without_line_ends_fills_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "MAX_BYTES", 1000)
    for content, message in (
        (b"x" * 3000, "line 1: no line end in"),
        (HEADER + b'1,2,"' + b"x\n" * 3000, "line 2: the value"),
    ):
        with pytest.raises(UserError, match=message):
            read_csv(tmp_path, content)
