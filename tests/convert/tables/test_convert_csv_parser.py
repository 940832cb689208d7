from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import itertools
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.convert.tables import csv_parser, quoting
from components.convert.tables.schema import Column, Label, Schema
from trainer.base.errors import UserError

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
    (block,) = csv_parser.read([path], schema)
    return block


def values(*blocks) -> dict[str, list]:
    """None where they are missing."""
    return {name: [value for block in blocks for value in block.columns[name].to_pylist()] for name in SCHEMA.columns}


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
        "i": list(i),
        "s": list(s),
    }


def test_files_follow_each_other_whatever_the_order_of_their_columns(tmp_path):
    paths = [tmp_path / name for name in ("b.csv", "a.csv")]
    paths[0].write_text("f,An int,s\n1,2,x\n3,4,y\n")
    paths[1].write_text("s,f,An int\n\nz,5,6\n")
    first, second = csv_parser.read(paths, SCHEMA)
    assert values(first, second) == {"f": [1, 3, 5], "i": [2, 4, 6], "s": ["x", "y", "z"]}
    for block, row, place in ((first, 0, "b.csv: line 2"), (first, 1, "b.csv: line 3"), (second, 0, "a.csv: line 3")):
        assert str(block.error(row, "oh")) == f"{tmp_path}/{place}: oh"
    kept = first.filtered(np.array([False, True]))
    assert values(kept) == {"f": [3], "i": [4], "s": ["y"]}
    assert "b.csv: line 3" in str(kept.error(0, "oh"))
    with pytest.raises(UserError, match=r"a\.csv: is given more than once"):
        list(csv_parser.read([*paths, paths[1]], SCHEMA))


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=5), end=st.sampled_from(["", "\n", "\n\n"]))
def test_files_may_have_no_rows_but_not_all_of_them(tmp_path_factory, counts, end):
    directory, rows = tmp_path_factory.mktemp("csv"), iter(range(99))
    paths = [directory / f"{i}.csv" for i in range(len(counts))]
    for path, count in zip(paths, counts, strict=True):
        path.write_text("\n".join(["f,An int,s", *(f"{i},{i},x" for i in itertools.islice(rows, count))]) + end)
    if any(counts):
        assert values(*csv_parser.read(paths, SCHEMA))["i"] == list(range(sum(counts)))
    else:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        with pytest.raises(UserError, match=rf"0\.csv{more}: a header and no rows"):
            list(csv_parser.read(paths, SCHEMA))


def test_a_row_is_named_by_its_line_behind_quoted_line_ends_and_blank_lines(tmp_path):
    table = read(tmp_path, 'f,An int,s\r\n1,2,"a\nb\nc"\r\n\r\n3,4,x\r\n')
    assert str(table.error(1, "oh")).endswith("t.csv: line 6: oh")


def test_texts_that_stand_for_a_missing_value_and_columns_that_nobody_wants(tmp_path):
    schema = dataclasses.replace(SCHEMA, missing=("NA", "-"), ignore_others=True)
    table = read(tmp_path, b"x,f,An int,s,y\n?,1,NA,-,\xff\n,2,-,,?\n", schema)
    assert values(table) == {"f": [1, 2], "i": [None, None], "s": [None, ""]}


HEADER = b"f,An int,s\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"empty; it needs a header"),
        (b"\n\n", r"empty; it needs a header"),
        (HEADER, r"a header and no rows"),
        (b"f,s\n1,x\n", r"has no column 'An int' \(it has f, s\)"),
        (b"f,An int,s,t\n1,2,x,y\n", r"unknown column 't'.*add it to the schema, or 'other_columns: ignore'"),
        (b"f,f,An int,s\n1,1,2,x\n", r"column 'f' stands in the header more than once"),
        (b"BZh9\xff\xfe\n1,2,x\n", r"is no column's name in UTF-8; is it a CSV file, and not compressed"),
        (b"\x1f\x8b\x08\xff\xfe\n1,2,x\n", r"damaged: cannot be unpacked"),
        (gzip.compress(HEADER, mtime=0), r"a header and no rows"),
        (gzip.compress(HEADER + b'1,2,"a"b', mtime=0), r"line 2, column 7: text follows"),
        (b'f,"An\nint",s\n1,2,x\n', r"'An\\nint' is no column's name"),
        (HEADER + b"1,2,x\n1,2\n", r"line 3: 2 values; the header has 3"),
        (HEADER + b"1,2,x\n\n1,2,x,y\n", r"line 4: 4 values; the header has 3"),
        (HEADER + b'1,2,"a\nb"\nx,2,x\n', r"line 4: f: 'x' is no finite 32-bit number"),
        (HEADER + b"1,2.0,x\n", r"line 2: i: '2\.0' is no 64-bit whole number"),
        (HEADER + b"1,9223372036854775808,x\n", r"line 2: i: '9223372036854775808' is no 64-bit whole number"),
        (HEADER + b"1," + 5000 * b"1" + b",x\n", r"line 2: i: '1{40}' is no 64-bit whole number"),
        (HEADER + b"nan,2,x\n", r"line 2: f: 'nan' is no finite"),
        (HEADER + b"1,2,x\n-inf,2,x\n", r"line 3: f: '-inf' is no finite"),
        (HEADER + b"1e39,2,x\n", r"line 2: f: '1e39' is no finite"),
        (HEADER + b",2,x\n", r"line 2: f: is missing, and the schema has no default"),
        (HEADER + b"1,2,\xff\n", r"line 2: s: b'\\xff' is not UTF-8"),
        (HEADER + b"1,\xff,x\n", r"line 2: i: b'\\xff' is not UTF-8"),
        (HEADER + b'1,2,x\n1,2,"x\n1,2,x\n', r"line 3, column 5: the value that a quote opens here has no end"),
        (HEADER + b'1,2,5" pipe\n', r"line 2, column 6: a quote in a value that does not start with one; .* twice"),
        (HEADER + b'\n1,2,"a" \n', r"line 3, column 7: text follows .* from line 3, column 5; .* twice"),
        (HEADER + '1,2,"ä\r\r\nö"x\n'.encode(), r"line 4, column 2: text follows .* from line 2, column 5"),
        (HEADER + b"1,2,x\n\r1,2,\0\n", r"line 4, column 5: a zero byte; is it a CSV file in UTF-8"),
        (HEADER.decode().encode("utf-16"), r"line 1, column 4: a zero byte; is it a CSV file in UTF-8"),
        (b"%PDF-1.7\n\x80\x01\n", r"its first line names no column of the schema \(f, An int, s\); it needs a header"),
        (b"1.5,2,x\n", r"its first line names no column"),
        (
            b'"f";"An int";"s"\n1;2;x\n',
            r"the header's names stand between ';', not ','; write 'delimiter: \";\"' into the",
        ),
        (b"\nf\tAn int\ts,t\ts\n", r"the header's names stand between '\\t', not ','; write 'delimiter: \"\\t\"' into"),
        (b"f, An int ,s\n", r"' An int ' in the header has spaces around it; .* 'header: \" An int \"' for i into"),
        (b"f,An int,s,\n", r"column 4 of the header has no name; add it"),
        (b"f,,An int,,s\n", r"column 2 of the header has no name; add it"),
        (b"\xef\xbb\xbf\xef\xbb\xbff,An int,s\n", r"'\\ufefff' is no column's name"),
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
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(content)
    try:
        for block in csv_parser.read([path], SCHEMA):  # a last line without an end is a block of its own
            assert np.isfinite(block.columns["f"].to_numpy().astype(np.float32)).all()
    except UserError as error:
        assert "t.csv: " in str(error)


WORDS = dataclasses.replace(
    SCHEMA, columns={name: Column(name=name, header=name, type="string") for name in "abc"}, missing=()
)
TOKEN = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n?|\n|\Z)')


def tokenised(text: str) -> tuple[list[tuple[int, list[str]]], int | None]:
    """The line and the values of each row up to the first fault, and the line of the value that has it."""
    rows, at = [], 0
    while at < len(text):
        cells, start, end = [], at, ","
        while end == ",":
            if not (token := TOKEN.match(text, at)):
                return rows, line_at(text, at)
            quoted, bare, end = token.groups()
            cells.append(bare if quoted is None else quoted.replace('""', '"'))
            at = token.end()
        if token.span() != (start, start + len(end)):
            rows.append((line_at(text, start), cells))
    return rows, None


def line_at(text: str, at: int) -> int:
    return 1 + len(re.findall(r"\r\n?|\n", text[:at]))


@st.composite
def tables(draw) -> tuple[list[list[str]], str]:
    """Rows, and what Python writes of them."""
    cell = st.text(st.sampled_from('",\n\r ax\u00e9'), max_size=4)
    rows = draw(st.lists(st.lists(cell, min_size=3, max_size=3), min_size=1, max_size=6))
    broken = any(set(cell) & set("\r\n") for row in rows for cell in row)  # not every writer quotes for both of them
    quoting = csv.QUOTE_ALL if broken else draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    file = io.StringIO(newline="")
    csv.writer(file, quoting=quoting, lineterminator=draw(st.sampled_from(["\n", "\r\n", "\r"]))).writerows(rows)
    return rows, file.getvalue()[: -1 if draw(st.booleans()) else None]  # the last line may have no end


def in_blocks(directory, text: str, block_bytes: int) -> list[list[str]]:
    """The rows as the reader gives them that takes so many bytes at once."""
    path = directory / "t.csv"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quoting, "BLOCK_BYTES", block_bytes)
        return rows_of(csv_parser.read([path], WORDS))


def rows_of(blocks) -> list[list[str]]:
    rows = []
    for block in blocks:
        columns = [block.columns[name].to_pylist() for name in "abc"]
        rows += map(list, zip(block.positions, *columns, strict=True))
    return [row[1:] for row in rows]


@given(table=tables(), block_bytes=st.integers(1, 40), mark=st.booleans())
def test_blocks_of_any_size_give_what_python_wrote_and_reads(tmp_path_factory, table, block_bytes, mark):
    rows, text = table
    assert list(csv.reader(io.StringIO(text, newline=""), strict=True)) == rows
    assert [cells for _, cells in tokenised(text)[0]] == rows
    assert in_blocks(tmp_path_factory.mktemp("csv"), "\ufeff" * mark + "a,b,c\n" + text, block_bytes) == rows


@given(table=tables(), other=st.sampled_from(";\t|"), told=st.booleans())
def test_any_delimiter_is_as_good_as_a_comma(tmp_path_factory, table, other, told):
    swap = str.maketrans({",": other, other: ","})
    schema = dataclasses.replace(WORDS, delimiter=other if told or other != "\t" else None)
    path = tmp_path_factory.mktemp("csv") / ("t.csv" if told else "t.TSV.gz")
    content = ("a,b,c\n" + table[1]).translate(swap).encode()
    path.write_bytes(content if told else gzip.compress(content))
    assert rows_of(csv_parser.read([path], schema)) == [[cell.translate(swap) for cell in row] for row in table[0]]


@settings(max_examples=150)
@given(table=tables(), block_bytes=st.integers(1, 40), data=st.data())
def test_no_row_is_lost_from_a_damaged_file_without_a_word(tmp_path_factory, table, block_bytes, data):
    body = table[1]
    for _ in range(data.draw(st.integers(1, 3))):
        start, end = sorted(data.draw(st.integers(0, len(body))) for _ in range(2))
        put = data.draw(st.sampled_from(['"', '""', "", ",", " ", "\n", "\r", body[start:end] + '"']))
        body = body[:start] + put + body[data.draw(st.sampled_from([start, start + 1, end])) :]
    text = "a,b,c\n" + body
    rows, fault = tokenised(text)
    ragged = [line for line, cells in rows if len(cells) != 3]
    try:
        got = in_blocks(tmp_path_factory.mktemp("csv"), text, block_bytes)
    except UserError as error:
        places = {fault, *ragged[:1]} - {None}
        assert {int(line) for line in re.findall(r"line (\d+)", str(error))} & places or (
            "no rows" in str(error) and not places and len(rows) == 1
        )
    else:
        assert not fault and [cells for _, cells in rows[1:]] == got


@pytest.mark.parametrize("rows", [1000, 200_000])
def test_a_quote_that_a_later_one_seems_to_close_is_found_in_files_of_any_size(tmp_path, rows):
    lines = [f"{i},{i},x" for i in range(rows)]
    lines[10], lines[-100] = '10,10,"open', '1,1,5" pipe'
    (tmp_path / "t.csv").write_text("\n".join(["f,An int,s", *lines]))
    with pytest.raises(UserError, match=rf"t\.csv: line {rows - 98}, column 6: text follows .* line 12, column 7;"):
        list(csv_parser.read([tmp_path / "t.csv"], SCHEMA))


@given(text=st.text("01+-.eExX_ \tinafyNAI\v", max_size=6), kind=st.sampled_from(["f", "i"]), quoted=st.booleans())
@example(text="0x10", kind="i", quoted=False)
@example(text="-0X1f", kind="i", quoted=True)
@example(text=" 7\t", kind="i", quoted=False)
@example(text="+1", kind="i", quoted=False)
@example(text="1_0", kind="i", quoted=False)
@example(text="1e3", kind="i", quoted=False)
@example(text="0x1p3", kind="f", quoted=False)
@example(text="infinity", kind="f", quoted=False)
@example(text="+.5e-3 ", kind="f", quoted=True)
@example(text="1e-999", kind="f", quoted=False)
@example(text="\u0663", kind="i", quoted=False)
@example(text="\xa01", kind="f", quoted=False)
def test_a_number_is_plain_decimal_or_refused(tmp_path_factory, text, kind, quoted):
    plain = {"i": r"[ \t]*-?\d+[ \t]*", "f": r"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[ \t]*"}[kind]
    row = {"f": "1", "i": "0", kind: f'"{text}"' if quoted else text}
    table = f"f,An int,s\n1,2,0x\n{row['f']},{row['i']},x\n"
    right = text == "" if kind == "i" and not text else re.fullmatch(plain, text, re.ASCII)
    right = right and (kind == "i" or abs(float(text)) <= float(np.finfo(np.float32).max))
    try:
        block = read(tmp_path_factory.mktemp("csv"), table)
    except UserError as error:
        assert not right and f"line 3: {kind}: " in str(error)
    else:
        assert right and block.columns[kind][1].as_py() == ({"i": int, "f": float}[kind](text) if text else None)


@given(data=st.data())
def test_a_packed_file_is_read_whole_or_refused(tmp_path_factory, data):
    path, lines = tmp_path_factory.mktemp("csv") / "t.csv", [f"{i},{i},{i % 7}" for i in range(3000)]
    packed = gzip.compress("\n".join(["f,An int,s", *lines[:1000], ""]).encode())
    path.write_bytes(packed + gzip.compress("\n".join(lines[1000:]).encode()))  # as `cat a.gz b.gz` makes it
    assert values(*csv_parser.read([path], SCHEMA))["i"] == list(range(3000))
    with open(path, "r+b") as file:
        file.truncate(data.draw(st.integers(3, path.stat().st_size - 1).filter(lambda size: size != len(packed))))
    with pytest.raises(UserError, match=r"t\.csv: damaged: cannot be unpacked"):
        list(csv_parser.read([path], SCHEMA))


def test_a_directory_or_nothing_is_no_file(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        list(csv_parser.read([tmp_path / "nothing.csv"], SCHEMA))
    with pytest.raises(UserError, match="Is a directory"):
        list(csv_parser.read([tmp_path], SCHEMA))


def test_a_file_of_several_blocks_has_every_row_once_and_names_its_lines(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f'{i},{i % 7},"{"x" * 90}\n{i}"' for i in range(30_000)]
    path.write_text("\n".join(["f,An int,s", *rows]))
    blocks = list(csv_parser.read([path], SCHEMA))
    assert len(blocks) > 2 and values(*blocks)["f"] == list(range(30_000))
    assert str(blocks[2].error(1, "oh")) == f"{path}: line {2 * int(blocks[2].columns['f'][1].as_py()) + 2}: oh"
    path.write_text("\n".join(["f,An int,s", *rows, "oh,1,x"]))
    with pytest.raises(UserError, match=r"t\.csv: line 60002: f: 'oh' is no finite"):
        list(csv_parser.read([path], SCHEMA))


@pytest.mark.parametrize(
    ("start", "filler", "message"),
    [
        (b"", b"", "line 1, column 1: a zero byte"),
        (b"", b"x", "line 1: no line end in 16,777,219 bytes; is it a CSV file"),
        (HEADER + b"1,2,", b"x", "line 2: no line end in"),
        (HEADER + b'1,2,"', b"x\n", "line 2, column 5: the value that a quote opens here has no end"),
    ],
)
def test_a_file_without_line_ends_does_not_fill_the_memory(tmp_path, start, filler, message):
    path = tmp_path / "large.csv"
    with open(path, "wb") as file:
        file.write(start + filler * (20_000_000 // max(1, len(filler))))
        try:
            file.truncate(2**38)
        except OSError:
            pytest.skip("this file system has no sparse files of 256 GiB")
    with pytest.raises(UserError, match=f"{path}: .*{message}"):
        list(csv_parser.read([path], SCHEMA))
