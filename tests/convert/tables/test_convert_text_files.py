import contextlib
import csv
import dataclasses
import json
import os
import pathlib

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.errors import UserError
from common.storage.files import stat_file
from components.convert.pieces import Cut, Piece
from components.convert.tables import expressions, quoting, text_files
from components.convert.tables.schema import Column, Label, Schema

COLUMNS = {
    column.name: column
    for column in (
        Column(name="age", header="age", type="int"),
        Column(name="said", header="said", type="string", default=""),
    )
}
TYPES = {column.name: column.type for column in COLUMNS.values()}
SCHEMA = Schema(
    name="t",
    origin="t",
    columns=COLUMNS,
    label=Label(classes=("no", "yes", "x"), column="said"),
    filter=expressions.parse({"greater": ["age", 0]}, TYPES, "filter"),
    missing=("",),
    ignore_others=False,
    content={},
)


def cut(paths: list[pathlib.Path], *, pieces: int = 1, piece_bytes: int = 1 << 40, of_json: bool = False) -> Cut:
    files = [stat_file(str(path)) for path in paths]
    found = text_files.cut(files, SCHEMA, json=of_json, pieces=pieces, piece_bytes=piece_bytes)
    raw = json.loads(json.dumps(dataclasses.asdict(found)))  # as another machine has it
    return Cut(pieces=tuple(Piece(**piece) for piece in raw["pieces"]), facts=raw["facts"])


def table(found: Cut, *, of_json: bool = False, skip_bad: int = 0) -> text_files.TextTable:
    return text_files.TextTable.of(SCHEMA, cut=found, json=of_json, skip_bad=skip_bad)


def rows_of(found: Cut, **how) -> list[tuple[int, str, int, str]]:
    """Position, place and values of every row."""
    source = table(found, **how)
    return [
        (int(block.positions[i]), str(block.error(i, "oh")), *row.values())
        for piece in found.pieces
        for block in source.batches(piece)
        for i, row in enumerate(block.columns.to_pylist())
    ]


def written(path: pathlib.Path, rows: list[tuple], line_end: str, blank: int, of_json: bool) -> pathlib.Path:
    if of_json:
        lines = [json.dumps({"age": age, "said": said}) + line_end for age, said in rows]
        path.write_text("".join(line + line_end * (i % 3 == blank) for i, line in enumerate(lines)), newline="")
        return path
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator=line_end, quoting=csv.QUOTE_ALL)
        for i, row in enumerate([("age", "said"), *rows]):
            writer.writerow(row)
            file.write(line_end * (i % 3 == blank))
    return path


@given(
    files=st.lists(
        st.lists(st.tuples(st.integers(0, 10**6), st.text('a",\n\ré', max_size=6)), max_size=12),
        min_size=1,
        max_size=3,
    ).filter(any),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    blank=st.integers(0, 3),
    pieces=st.integers(1, 9),
    piece_bytes=st.integers(1, 100) | st.just(1 << 40),
    block_bytes=st.integers(1, 40),
    of_json=st.booleans(),
)
def test_pieces_have_every_row_once_at_its_position_and_place_whatever_they_are(
    tmp_path_factory, files, line_end, blank, pieces, piece_bytes, block_bytes, of_json
):
    directory = tmp_path_factory.mktemp("cut")
    paths = [written(directory / f"{i}.csv", rows, line_end, blank, of_json) for i, rows in enumerate(files)]
    expected = [row for rows in files for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "_SCANNED_BYTES", block_bytes)
        patch.setattr(quoting, "BLOCK_BYTES", block_bytes)
        found = cut(paths, pieces=pieces, piece_bytes=piece_bytes, of_json=of_json)
        got = rows_of(found, of_json=of_json)
    assert [(age, said or "") for *_, age, said in got] == expected
    assert [position for position, *_ in got] == list(range(len(expected)))
    assert found.extents == {"train": len(expected)} and all(piece.extent for piece in found.pieces)
    for piece, other in zip(found.pieces, found.pieces[1:], strict=False):
        assert piece.position + piece.extent == other.position
    assert got == rows_of(cut(paths, of_json=of_json), of_json=of_json)  # with the same lines


def test_pieces_are_about_equal_and_each_reads_its_own_bytes_only(tmp_path, bytes_read):
    files = [tmp_path / name for name in ("a.csv", "b.csv")]
    for file, count in zip(files, (50_000, 150_000), strict=True):
        file.write_text("age,said\n" + "".join(f"{i},yes{i % 97}\n" for i in range(count)))
    total = sum(file.stat().st_size for file in files)
    found = cut(files, pieces=8)
    assert [piece.file for piece in found.pieces] == [0, 0, *[1] * 7][: len(found.pieces)]
    assert sum(piece.num_bytes for piece in found.pieces) == pytest.approx(total, rel=1e-4)
    sizes = [piece.stop - piece.start for piece in found.pieces]
    assert max(sizes) < total / 8 + 50
    finer = cut(files, pieces=2, piece_bytes=100_000)
    assert max(piece.stop - piece.start for piece in finer.pieces) < 100_050
    source = table(found)
    for piece, size in zip(found.pieces, sizes, strict=True):
        before = bytes_read()
        assert sum(len(block.positions) for block in source.batches(piece)) == piece.extent
        assert bytes_read() - before == size


def pack(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(("codec", "name"), [("gzip", "a.tsv.gz"), ("zstd", "a.tsv.zst")])
def test_a_packed_file_is_a_piece_that_is_whole_or_refused(tmp_path, codec, name):
    lines = "".join(f"{i}\tyes\n" for i in range(5000)).encode()
    packed = pack(b"age\tsaid\n" + lines[:20_000], codec) + pack(lines[20_000:], codec)
    (tmp_path / name).write_bytes(packed)
    found = cut([tmp_path / name], pieces=8, piece_bytes=10)
    assert len(found.pieces) == 1 and found.pieces[0].num_bytes in range(len(packed) - 50, len(packed) + 1)
    assert [row[2] for row in rows_of(found)] == list(range(5000))
    for share in (0.01, 0.4, 0.99):
        (tmp_path / name).write_bytes(packed[: int(share * len(packed))])
        with pytest.raises(UserError, match=rf"{name}: cannot be read \("):
            cut([tmp_path / name])


def test_files_that_several_processes_scan_are_cut_as_one_cuts_them(tmp_path, monkeypatch):
    paths = []
    for i, name in enumerate(("a.csv", "b.csv", "c.csv.gz")):
        paths.append(tmp_path / name)
        text = "age,said\n" + "".join(f'{k},"y\nes"\n' for k in range(400 * i + 1))
        paths[-1].write_bytes(pack(text.encode(), "gzip") if i == 2 else text.encode())
    alone = cut(paths, pieces=7)
    monkeypatch.setattr(text_files, "usable_cores", lambda: 2)
    monkeypatch.setattr(text_files, "_PROCESS_BYTES", 1)
    assert cut(paths, pieces=7) == alone and len(alone.pieces) > 3
    paths[1].write_text('age,said\n1,"yes\n')
    with pytest.raises(UserError, match=r"b.csv: line 2, column 3: the value that a quote opens here has no end"):
        cut(paths)


def test_a_file_that_has_changed_since_it_was_cut_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,said\n1,yes\n")
    found = cut([path])
    os.utime(path, ns=(0, 0))
    with pytest.raises(UserError, match=r"a\.csv: it has changed or gone since"):
        rows_of(found)


def test_the_rate_of_a_scan_that_takes_long_is_told(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.csv").write_text("age,said\n1,yes\n")
    seconds = iter((0.0, 4.0))
    monkeypatch.setattr(text_files.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(text_files, "track", lambda *_: contextlib.nullcontext(lambda num_bytes: None))
    cut([tmp_path / "a.csv"])
    assert "scanned for the ends of records: 15 bytes in 4.0 s, 4 bytes/s" in capsys.readouterr().out


damages = st.sampled_from(["", "x", "1", "1,2,3", "1,maybe", "9,", "0x1,no", "{age: 3}", "{}", "[]", '{"said": "no"}'])


@example(rows=["x", "x"], of_json=True, pieces=2, block_bytes=1)  # pieces that are shorter than a mark of UTF-8
@given(
    rows=st.lists(st.integers(-5, 99) | damages, min_size=1, max_size=30),
    of_json=st.booleans(),
    pieces=st.integers(1, 4),
    block_bytes=st.integers(1, 60) | st.just(4000),
)
def test_rows_that_are_wrong_are_skipped_and_no_row_is_lost_without_a_word(
    tmp_path_factory, rows, of_json, pieces, block_bytes
):
    right = '{{"age": {}, "said": "no"}}' if of_json else "{},no"
    lines = [right.format(row) if isinstance(row, int) else row for row in rows]
    if not of_json:
        lines = ["age,said", *(line.replace('"', "") for line in lines)]
    path = tmp_path_factory.mktemp("skip") / "a.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    records = [row for row in rows if row != ""]  # a blank line is none
    if not records:
        with pytest.raises(UserError, match="no rows"):
            cut([path], of_json=of_json)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quoting, "BLOCK_BYTES", block_bytes)
        patch.setattr(text_files, "_READ_SINGLY", pieces)
        found = cut([path], pieces=pieces, of_json=of_json)
        source = table(found, of_json=of_json, skip_bad=len(records))
        blocks = [block for piece in found.pieces for block in source.blocks(piece)]
    kept = [(int(p), int(age)) for b in blocks for p, age in zip(b.positions, b.columns["age"], strict=True)]
    assert kept == [(i, row) for i, row in enumerate(records) if isinstance(row, int) and row > 0]
    assert sum(block.left_out for block in blocks) == sum(isinstance(row, int) and row <= 0 for row in records)
    wrong = [i + 1 + (not of_json) for i, row in enumerate(rows) if isinstance(row, str) and row]
    told = [int(text.removeprefix(f"{path}: line ").split(":")[0]) for block in blocks for text in block.skipped]
    assert sorted(told) == wrong
