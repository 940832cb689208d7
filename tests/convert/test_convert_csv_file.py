from __future__ import annotations

import csv
import dataclasses
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert import csv_file
from components.convert.schema import Column, Label, Schema
from trainer.errors import UserError

SCHEMA = Schema(
    name="t",
    origin="t",
    columns={
        column.name: column
        for column in (
            Column(name="f", header="f", type="float"),
            Column(name="i", header="An int", type="int", default=-1),
            Column(name="s", header="s", type="string", default="none"),
        )
    },
    label=Label(classes=("a", "b"), column="s"),
    filter=None,
    deep=(),
    wide=(),
    missing=("",),
    ignore_others=False,
    content={},
)


def read(tmp_path, content: bytes | str, schema: Schema = SCHEMA, name: str = "t.csv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (block,) = csv_file.read([path], schema)
    return block


def values(*blocks) -> dict[str, list]:
    return {name: [value for block in blocks for value in block.columns[name].tolist()] for name in SCHEMA.columns}


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@given(
    rows=st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | texts.filter(bool) | st.sampled_from(['"', "\n", "\r\n", ",", " a ", '""', "NA", "\n\n"]),
        ),
        min_size=1,
        max_size=5,
    ),
    order=st.permutations(["f", "i", "s"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    mark=st.booleans(),
)
def test_every_value_is_what_python_wrote(tmp_path_factory, rows, order, line_end, quoting, mark):
    file = io.StringIO(newline="")
    if any("\r" in (s or "") for *_, s in rows):
        quoting = csv.QUOTE_ALL  # Python's writer before 3.13 leaves a lone CR bare, and bare it ends a line
    writer = csv.writer(file, lineterminator=line_end, quoting=quoting)
    writer.writerow([SCHEMA.columns[name].header for name in order])
    for row in rows:
        cells = dict(zip("fis", row, strict=True))
        writer.writerow(["" if cells[name] is None else cells[name] for name in order])
    content = ("\ufeff" * mark + file.getvalue()).encode()
    table = read(tmp_path_factory.mktemp("csv"), content)
    f, i, s = zip(*rows, strict=True)
    assert values(table) == {
        "f": list(f),
        "i": [-1 if v is None else v for v in i],
        "s": ["none" if v is None else v for v in s],
    }
    assert {name: where.tolist() for name, where in table.missing.items()} == {
        "i": [v is None for v in i],
        "s": [v is None for v in s],
    }


def test_files_follow_each_other_whatever_the_order_of_their_columns(tmp_path):
    paths = [tmp_path / name for name in ("b.csv", "a.csv")]
    paths[0].write_text("f,An int,s\n1,2,x\n3,4,y\n")
    paths[1].write_text("s,f,An int\n\nz,5,6\n")
    first, second = csv_file.read(paths, SCHEMA)
    assert values(first, second) == {"f": [1, 3, 5], "i": [2, 4, 6], "s": ["x", "y", "z"]}
    for block, row, place in ((first, 0, "b.csv: line 2"), (first, 1, "b.csv: line 3"), (second, 0, "a.csv: line 3")):
        assert str(block.error(row, "oh")) == f"{tmp_path}/{place}: oh"
    kept = first.filtered(np.array([False, True]))
    assert values(kept) == {"f": [3], "i": [4], "s": ["y"]}
    assert "b.csv: line 3" in str(kept.error(0, "oh"))
    with pytest.raises(UserError, match=r"a\.csv: is given more than once"):
        list(csv_file.read([*paths, paths[1]], SCHEMA))


def test_a_row_is_named_by_its_line_behind_quoted_line_ends_and_blank_lines(tmp_path):
    table = read(tmp_path, 'f,An int,s\r\n1,2,"a\nb\nc"\r\n\r\n3,4,x\r\n')
    assert str(table.error(1, "oh")).endswith("t.csv: line 6: oh")


def test_texts_that_stand_for_a_missing_value_and_columns_that_nobody_wants(tmp_path):
    schema = dataclasses.replace(SCHEMA, missing=("NA", "-"), ignore_others=True)
    table = read(tmp_path, b"x,f,An int,s,y\n?,1,NA,-,\xff\n,2,-,,?\n", schema)
    assert values(table) == {"f": [1, 2], "i": [-1, -1], "s": ["none", ""]}


HEADER = b"f,An int,s\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"empty; it needs a header"),
        (b"\n\n", r"empty; it needs a header"),
        (HEADER, r"has a header and no rows"),
        (b"f,s\n1,x\n", r"has no column 'An int' \(it has f, s\)"),
        (b"f,An int,s,t\n1,2,x,y\n", r"unknown column 't'.*add it to the schema, or 'other_columns: ignore'"),
        (b"f,f,An int,s\n1,1,2,x\n", r"column 'f' stands in the header more than once"),
        (b"\x1f\x8b\x08\x00\xff\xfe\n1,2,x\n", r"is no column's name in UTF-8; is it a CSV file, and not compressed"),
        (b'f,"An\nint",s\n1,2,x\n', r"'An\\nint' is no column's name"),
        (HEADER + b"1,2,x\n1,2\n", r"line 3: 2 values; the header has 3"),
        (HEADER + b"1,2,x\n\n1,2,x,y\n", r"line 4: 4 values; the header has 3"),
        (HEADER + b'1,2,"a\nb"\nx,2,x\n', r"line 4: f: 'x' is no finite 32-bit number"),
        (HEADER + b"1,2.0,x\n", r"line 2: i: '2\.0' is no 64-bit whole number"),
        (HEADER + b"1,9223372036854775808,x\n", r"line 2: i: '9223372036854775808' is no 64-bit whole number"),
        (HEADER + b"nan,2,x\n", r"line 2: f: 'nan' is no finite"),
        (HEADER + b"1,2,x\n-inf,2,x\n", r"line 3: f: '-inf' is no finite"),
        (HEADER + b"1e39,2,x\n", r"line 2: f: '1e39' is no finite"),
        (HEADER + b",2,x\n", r"line 2: f: is missing, and the schema has no default"),
        (HEADER + b"1,2,\xff\n", r"line 2: s: b'\\xff' is not UTF-8"),
        (HEADER + b"1,\xff,x\n", r"line 2: i: b'\\xff' is not UTF-8"),
        (HEADER + b'1,2,x\n1,2,"x\n1,2,x\n', r"line 3: unexpected end of data"),
        (HEADER + b"1,1_0,x\n", r"1_0"),
        (b"%PDF-1.7\n\x00\x01\n", r"unknown column '%PDF-1\.7'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_its_place(tmp_path, content, message):
    with pytest.raises(
        UserError, match=rf"^{re.escape(str(tmp_path))}/t\.csv: {message}|/t\.csv: .*{message}"
    ) as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)


@given(data=st.data())
def test_no_bytes_at_all_raise_anything_else(tmp_path_factory, data):
    content = bytearray(HEADER + b'1,2,x\n1.5,,"a ""b"""\n-2e3,-7,\xc3\xa4\n')
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(b'\0\n\r",\xff19.-x '))
    try:
        table = read(tmp_path_factory.mktemp("csv"), bytes(content))
    except UserError as error:
        assert "t.csv: " in str(error)
    else:
        assert np.isfinite(table.columns["f"].astype(np.float32)).all()


def test_a_stray_quote_inside_a_value_is_part_of_it(tmp_path):
    assert values(read(tmp_path, HEADER + b'1,2,5" pipe\n'))["s"] == ['5" pipe']


def test_a_directory_or_nothing_is_no_file(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        list(csv_file.read([tmp_path / "nothing.csv"], SCHEMA))
    with pytest.raises(UserError, match="Is a directory"):
        list(csv_file.read([tmp_path], SCHEMA))


def test_a_file_of_several_blocks_has_every_row_once_and_names_its_lines(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f'{i},{i % 7},"{"x" * 90}\n{i}"' for i in range(30_000)]
    path.write_text("\n".join(["f,An int,s", *rows]))
    blocks = list(csv_file.read([path], SCHEMA, working_bytes=0))
    assert len(blocks) > 2 and values(*blocks)["f"] == list(range(30_000))
    assert str(blocks[2].error(1, "oh")) == f"{path}: line {2 * int(blocks[2].columns['f'][1]) + 2}: oh"
    path.write_text("\n".join(["f,An int,s", *rows, "oh,1,x"]))
    with pytest.raises(UserError, match=r"t\.csv: line 60002: f: 'oh' is no finite"):
        list(csv_file.read([path], SCHEMA, working_bytes=0))


@pytest.mark.parametrize(
    ("start", "message"), [(b"", "line 1: no line end in 16,777,216"), (HEADER + b"1,2,", "no line end in 16,777,216")]
)
def test_a_file_without_line_ends_does_not_fill_the_memory(tmp_path, start, message):
    path = tmp_path / "large.csv"
    with open(path, "wb") as file:
        file.write(start)
        try:
            file.truncate(2**38)
        except OSError:
            pytest.skip("this file system has no sparse files of 256 GiB")
    with pytest.raises(UserError, match=f"{path}: .*{message}"):
        list(csv_file.read([path], SCHEMA, working_bytes=0))
