import csv
import dataclasses
import gzip
import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.storage.files import stat_file
from components.convert.tables import quoting, text_files
from components.convert.tables.schema import DELIMITERS, Column, Label, Schema
from components.convert.tables.table_block import TableBlock

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
    missing=("",),
    ignore_others=False,
    content={},
)
HEADER = b"f,An int,s\n"


def parsed(paths, schema: Schema = SCHEMA, *, pieces: int = 1, json: bool = False) -> list[TableBlock]:
    """The blocks of files that are cut into so many pieces."""
    cut = text_files.cut(
        [stat_file(str(path)) for path in paths], schema, json=json, pieces=pieces, piece_bytes=1 << 40
    )
    table = text_files.TextTable.of(schema, cut=cut, json=json)
    return [block for piece in cut.pieces for block in table.batches(piece)]


def read(
    tmp_path, content: bytes | str, schema: Schema = SCHEMA, name="t.csv", block_bytes=1 << 20, **how
) -> list[TableBlock]:
    """The blocks of a file, read so many bytes at a time."""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quoting, "BLOCK_BYTES", block_bytes)
        patch.setattr(text_files, "_SCANNED_BYTES", block_bytes)
        return parsed([path], schema, **how)


def values(*blocks) -> dict[str, list]:
    """None where they are missing."""
    names = blocks[0].columns.schema.names
    return {name: [value for block in blocks for value in block.columns[name].to_pylist()] for name in names}


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
texts |= st.text('",\n\r ax\u00e9', max_size=4)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    rows=st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | texts.filter(bool),
        ),
        min_size=1,
        max_size=5,
    ),
    order=st.permutations(["f", "i", "s"]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    delimiter=st.sampled_from(DELIMITERS),
    block_bytes=st.integers(1, 40) | st.just(1 << 20),
    cut=st.booleans(),
    mark=st.booleans(),
)
def test_every_value_is_what_python_wrote(tmp_path_factory, rows, order, line_end, delimiter, block_bytes, cut, mark):
    file = io.StringIO(newline="")
    # Python's writer before 3.13 leaves a lone CR bare, and bare it ends a line
    always = line_end == "\r" or any("\r" in (s or "") for *_, s in rows)
    quotes = csv.QUOTE_ALL if always else csv.QUOTE_MINIMAL
    writer = csv.writer(file, delimiter=delimiter, lineterminator=line_end, quoting=quotes)
    writer.writerow([SCHEMA.columns[name].header for name in order])
    for row in rows:
        cells = dict(zip("fis", row, strict=True))
        writer.writerow(["" if cells[name] is None else cells[name] for name in order])
    content = ("\ufeff" * mark + file.getvalue().removesuffix(line_end * cut)).encode()
    told = delimiter != "\t"
    schema = dataclasses.replace(SCHEMA, delimiter=delimiter if told else None)
    content, name = (content, "t.csv") if told else (gzip.compress(content), "t.TSV.gz")
    blocks = read(tmp_path_factory.mktemp("csv"), content, schema, name, block_bytes)
    f, i, s = zip(*rows, strict=True)
    assert values(*blocks) == {"f": list(f), "i": list(i), "s": list(s)}


@given(
    rows=st.lists(st.text("\ufeffa", min_size=1, max_size=3), min_size=1, max_size=6), block_bytes=st.integers(1, 40)
)
def test_a_byte_order_mark_within_a_file_is_text_wherever_the_file_is_cut(tmp_path_factory, rows, block_bytes):
    content = "s,f,An int\n" + "".join(f"{text},{i},\n" for i, text in enumerate(rows))
    found = values(*read(tmp_path_factory.mktemp("csv"), content, block_bytes=block_bytes, pieces=3))
    assert found["s"] == rows and found["f"] == [*range(len(rows))]


def test_files_follow_each_other_whatever_the_order_of_their_columns_and_one_may_have_no_rows(tmp_path):
    paths = [tmp_path / name for name in ("c.csv", "b.csv", "a.csv")]
    paths[0].write_text("f,An int,s\n")
    paths[1].write_text("f,An int,s\n1,2,x\n3,4,y\n")
    paths[2].write_text("s,f,An int\n\nz,5,6\n")
    first, second = parsed(paths)
    assert values(first, second) == {"f": [1, 3, 5], "i": [2, 4, 6], "s": ["x", "y", "z"]}
    for block, row, place in ((first, 0, "b.csv: line 2"), (first, 1, "b.csv: line 3"), (second, 0, "a.csv: line 3")):
        assert str(block.error(row, "oh")) == f"{tmp_path}/{place}: oh"
    kept = first.filtered(np.array([False, True]))
    assert values(kept) == {"f": [3], "i": [4], "s": ["y"]}
    assert "b.csv: line 3" in str(kept.error(0, "oh"))
    with pytest.raises(UserError, match=r"c\.csv: a header and no rows"):
        parsed(paths[:1])


def test_rows_of_several_blocks_are_named_by_their_lines_behind_quoted_line_ends_and_blank_lines(tmp_path):
    rows = [f'{i},{i % 7},"{"x" * 20}\r\n{i}"\r\n' for i in range(99)]
    content = "f,An int,s\r\n" + "".join(rows)
    blocks = read(tmp_path, content, block_bytes=1000)
    assert len(blocks) > 2 and values(*blocks)["f"] == list(range(99))
    row = int(blocks[2].columns["f"][1].as_py())
    assert str(blocks[2].error(1, "oh")) == f"{tmp_path / 't.csv'}: line {2 * row + 2}: oh"
    with pytest.raises(UserError, match=r"t\.csv: line 201: f: 'oh' is no finite"):
        read(tmp_path, content + "\r\noh,1,x", block_bytes=1000)


def test_booleans_are_spelled_in_several_ways_and_numbers_equal_to_a_missing_one_are_missing(tmp_path):
    truth = Column(name="s", header="s", type="bool", default="false")
    schema = dataclasses.replace(SCHEMA, columns={**SCHEMA.columns, "s": truth}, missing=("", "-9", "0"))
    (block,) = read(tmp_path, HEADER + b"1,-9, YES\n2, 0,0\n3,7,1\n4,-09,F\n", schema)
    assert values(block) == {"f": [1, 2, 3, 4], "i": [None, None, 7, None], "s": ["true", None, "true", "false"]}
    for row, told in (
        (b"1,2,maybe", "s: 'maybe' is no boolean, which is true t yes y 1 or false f no n 0"),
        (b"-9.00,2,1", "f: -9.00 is a missing value, and the schema has no default for it"),
    ):
        with pytest.raises(UserError, match=f"line 3: {told}"):
            read(tmp_path, HEADER + b"1,2,t\n" + row + b"\n", schema)


def test_times_are_stored_as_seconds_and_what_is_none_is_told(tmp_path):
    when = Column(name="i", header="An int", type="time", default=7)
    schema = dataclasses.replace(SCHEMA, columns={**SCHEMA.columns, "i": when}, missing=("", "NA", "0"))
    rows = b"1,2024-01-31,x\n2,NA,x\n3,1970-01-01T00:00Z,x\n4,1970-01-01 00:00:01.5+00:00,x\n"
    (block,) = read(tmp_path, HEADER + rows, schema)
    assert values(block)["i"] == [1706659200, None, None, 1]
    required = dataclasses.replace(schema, columns={**schema.columns, "i": dataclasses.replace(when, default=None)})
    for one, row, told in (
        (schema, b"1,2024-02-30,x", "i: '2024-02-30' is no date or time as in ISO 8601"),
        (schema, b"1, 2024-02-03,x", "i: ' 2024-02-03' is no date or time as in ISO 8601"),
        (required, b"1,NA,x", "i: is missing, and the schema has no default for it"),
        (required, b"1,1970-01-01,x", "i: 1970-01-01 is a missing value, and the schema has no default for it"),
    ):
        with pytest.raises(UserError, match=f"line 3: {told}"):
            read(tmp_path, HEADER + b"1,2024-01-31,t\n" + row + b"\n", one)


def test_texts_that_stand_for_a_missing_value_and_columns_that_nobody_wants(tmp_path):
    schema = dataclasses.replace(SCHEMA, missing=("NA", "-"), ignore_others=True)
    table = read(tmp_path, b"x,f,An int,s,y\n?,1,NA,-,\xff\n,2,-,,?\n", schema)
    assert values(*table) == {"f": [1, 2], "i": [None, None], "s": [None, ""]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n\n", r"empty; it needs a header"),
        (b"f,s\n1,x\n", r"has no column 'An int' \(it has 'f', 's'\)"),
        (b"f,An int,s,\n1,2,x,y\n", r"unknown column ''.*add it to the schema, or 'other_columns: ignore'"),
        (b'f,"An\nint",s\n1,2,x\n', r"unknown column 'An\\nint'"),
        (b"f,f,An int,s\n1,1,2,x\n", r"column 'f' stands in the header more than once"),
        (b"\x1f\x8b\x08\xff\xfe\n1,2,x\n", r"cannot be read \(zlib inflate failed"),
        (gzip.compress(HEADER + b'1,2,"a"b', mtime=0), r"line 2, column 7: text follows"),
        (HEADER + b"1,2,x\n1,2\n", r"line 3: 2 values; the header has 3"),
        (HEADER + b'1,2,"a\nb"\nx,2,x\n', r"line 4: f: 'x' is no finite 32-bit number"),
        (HEADER + b"1,9223372036854775808,x\n", r"line 2: i: '9223372036854775808' is no 64-bit whole number"),
        (HEADER + b"1," + 5000 * b"1" + b",x\n", r"line 2: i: '1{40}' is no 64-bit whole number"),
        (HEADER + b"1,2,x\n-inf,2,x\n", r"line 3: f: '-inf' is no finite"),
        (HEADER + b",2,x\n", r"line 2: f: is missing, and the schema has no default"),
        (HEADER + b"1,2,\xff\n", r"line 2: s: b'\\xff' is not UTF-8"),
        (HEADER + b'1,2,x\n1,2,"x\n1,2,x\n', r"line 3, column 5: the value that a quote opens here has no end"),
        (HEADER + b'1,2,5" pipe\n', r"line 2, column 6: a quote in a value that does not start with one; .* twice"),
        (HEADER + '1,2,"ä\r\r\nö"x\n'.encode(), r"line 4, column 2: text follows .* from line 2, column 5"),
        (HEADER + b"1,2,x\n\r1,2,\0\n", r"line 4, column 5: a zero byte; is it text in UTF-8"),
        (b"1.5;2;x\n", r"its first line names no column of the schema \(f, An int, s\); .* 'delimiter' if .* not ','"),
        (b'"f";"An int";"s"\n1;2;x\n', r"line 1, column 3: .* values have to stand between ','"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_its_place(tmp_path, content, message):
    with pytest.raises(UserError, match=rf"^{re.escape(str(tmp_path))}/t\.csv: {message}") as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)


COLUMNS = {name: Column(name=name, header=name, type="string") for name in "abc"}
WORDS = dataclasses.replace(SCHEMA, columns=COLUMNS, missing=())


@settings(max_examples=3 * settings.default.max_examples)
@given(
    rows=st.lists(st.lists(st.text('",\n\r ax', max_size=4), min_size=3, max_size=3), min_size=1, max_size=6),
    block_bytes=st.integers(1, 40),
    data=st.data(),
)
def test_no_row_is_lost_from_a_damaged_file_without_a_word(tmp_path_factory, rows, block_bytes, data):
    file = io.StringIO(newline="")
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    body = file.getvalue()
    for _ in range(data.draw(st.integers(0, 3))):
        start, end = sorted(data.draw(st.integers(0, len(body))) for _ in range(2))
        put = data.draw(st.sampled_from(['"', '""', "", ",", " ", "\n", "\r", body[start:end] + '"']))
        body = body[:start] + put + body[data.draw(st.sampled_from([start, start + 1, end])) :]
    try:
        blocks = read(tmp_path_factory.mktemp("csv"), "a,b,c\n" + body, WORDS, block_bytes=block_bytes)
    except UserError as error:
        assert "t.csv: " in str(error) and body != file.getvalue()
    else:
        strict = csv.reader(io.StringIO(body, newline=""), strict=True)  # raises what is wrong
        assert list(map(list, zip(*values(*blocks).values(), strict=True))) == list(filter(None, strict))


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            "i",
            {" 7\t": 7, "-07": -7, "": None},
            ["0x10", "0X1f", "+1", "1_0", "1e3", "1.0", "NA", "-", "\u0663", "1\v"],
        ),
        ("f", {"+.5e-3 ": 5e-4, "1e-999": 0, "5.": 5, "-7": -7, "1E2": 100}, ["0x1p3", "infinity", ".", "1e", "\xa01"]),
    ],
)
def test_a_number_is_plain_decimal_or_refused(tmp_path, kind, good, bad, quoted):
    for text in [*good, *bad]:
        row = {"f": "1", "i": "0", kind: f'"{text}"' if quoted else text}
        table = f"f,An int,s\n1,2,{'x' if quoted else '0x'}\n{row['f']},{row['i']},x\n"
        if text in good:
            assert values(*read(tmp_path, table))[kind][1] == good[text]
        else:
            with pytest.raises(UserError, match=f"line 3: {kind}: "):
                read(tmp_path, table)


@pytest.mark.parametrize(
    ("start", "filler", "message"),
    [
        (b"", b"\0", "line 1, column 1: a zero byte"),
        (b"", b"x", "line 1: no line end in 10,003 bytes; is it a text file"),
        (HEADER + b"1,2,", b"x", "line 2: no line end in"),
        (HEADER + b'1,2,"', b"x\n", "line 2, column 5: the value that a quote opens here has no end"),
    ],
)
def test_a_file_without_line_ends_does_not_fill_the_memory(tmp_path, monkeypatch, start, filler, message):
    monkeypatch.setattr(quoting, "MOST_BYTES", 10_000)
    with pytest.raises(UserError, match=f"/t.csv: {message}"):
        read(tmp_path, start + filler * 50_000, block_bytes=500)
