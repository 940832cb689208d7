"""Parquet files: the same rows as in CSV files, in pieces, and what cannot be read is told in a line."""

import dataclasses
import datetime as dt
import errno
import io
import json
import pathlib
import urllib.parse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.convert import pieces
from components.convert.sources import parquet_table
from components.convert.sources.parquet import ParquetReader

SCHEMA = {
    "name": "t",
    "origin": "t",
    "columns": {"a": {"type": "int"}, "kind": {"type": "string"}},
    "label": {"column": "kind", "classes": ["x", "y"]},
    "wide": [{"column": "a", "hash_buckets": 9}],
}


def table(rows: int, first: int = 0, **more: list) -> pa.Table:
    """`a` counts the rows."""
    kinds = pa.array(["xy"[i % 2] for i in range(rows)], pa.string())
    return pa.table({"a": pa.array(range(first, first + rows), pa.int64()), "kind": kinds, **more})


@pytest.fixture
def reader(tmp_path):
    """A reader of the schema, with changes."""

    def make(**changes: object) -> ParquetReader:
        path = tmp_path / "schema.yaml"
        path.write_text(yaml.safe_dump({**SCHEMA, **changes}, sort_keys=False), encoding="utf-8")
        return ParquetReader(schema=path)

    return make


def rows(reader: ParquetReader, source: pathlib.Path | list[str], count: int = 1, num_bytes: int = 1 << 30):
    """All rows, and the cut; what passes between tasks is JSON."""
    source = source if isinstance(source, list) else str(source)
    cut = reader.cut(source, pieces=count, piece_bytes=num_bytes)
    told = json.loads(json.dumps(dataclasses.asdict(cut)))
    cut = pieces.Cut(pieces=tuple(pieces.Piece(**piece) for piece in told["pieces"]), facts=told["facts"])
    read = reader.open(cut)
    found = [block for piece in reversed(cut.pieces) for block in reversed(list(read.batches(piece)))][::-1]
    assert np.array_equal(np.concatenate([b.positions for b in found]), np.arange(cut.extents["train"]))
    return [row for block in found for row in block.columns.to_pylist()], cut


@given(
    sizes=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=4).filter(lambda s: any(map(sum, s))),
    count=st.integers(1, 9),
    num_bytes=st.sampled_from([1, 300, 1 << 30]),
)
def test_pieces_are_row_groups_in_order_and_every_row_is_in_one(tmp_path_factory, sizes, count, num_bytes):
    root, first = tmp_path_factory.mktemp("table"), 0
    (root / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    for i, groups in enumerate(sizes):
        with pq.ParquetWriter(root / f"{i}.parquet", table(1).schema) as writer:  # which may have no row group
            for size in groups:
                writer.write_table(table(size, first))
                first += size
    found, cut = rows(ParquetReader(schema=root / "schema.yaml"), root, count, num_bytes)
    assert [row["a"] for row in found] == list(range(first))
    if num_bytes == 1:
        assert [piece.extent for piece in cut.pieces] == [size for groups in sizes for size in groups if size]
    if count == 1 and num_bytes > 300:
        assert len(cut.pieces) == sum(any(groups) for groups in sizes)


@pytest.mark.parametrize("place", ["here", pytest.param("bucket", marks=pytest.mark.cluster)])
def test_processes_together_read_each_byte_of_the_wanted_columns_once(tmp_path, reader, request, bytes_read, place):
    folder, noise = tmp_path, np.random.default_rng(0).bytes(5_000_000).hex()
    if place == "bucket":
        folder = request.getfixturevalue("bucket")
    numbers = {f"x{i}": np.random.default_rng(i).random(1000) for i in range(9)}
    wide = table(1000, **numbers, text=[noise[10_000 * i : 10_000 * (i + 1)] for i in range(1000)])
    path = folder / "t.parquet"
    pq.write_table(wide, path, row_group_size=100, compression="none")
    num_bytes, source = path.stat().st_size, "gs://demo/t.parquet" if place == "bucket" else str(path)

    def read(reader: ParquetReader, tasks: int) -> tuple[str, float]:
        cut, texts = reader.cut(source, pieces=16, piece_bytes=1 << 20), {}
        before = bytes_read()
        for task in range(tasks):
            parquet_table._footer.cache_clear()  # each is a process of its own
            for piece in cut.pieces[task::tasks]:
                for block in reader.open(cut).batches(piece):
                    found = block.columns.to_pydict()
                    texts |= zip(block.positions.tolist(), found.get("text", found["kind"]), strict=True)
                    assert block.columns.nbytes < 5e6
        return "".join(text for _, text in sorted(texts.items())), (bytes_read() - before) / num_bytes

    floats = {name: {"type": "float"} for name in numbers}
    few = {"columns": {**SCHEMA["columns"], **floats}, "other_columns": "ignore"}
    everything = {"columns": {**few["columns"], "text": {"type": "string"}}}
    for tasks in (1, 4, 10):
        texts, share = read(reader(**everything), tasks)
        assert texts == noise and 0.99 < share < 1.05
        assert read(reader(**few), tasks)[1] < 0.1


def test_folders_say_columns_and_hidden_files_are_none(tmp_path, reader):
    for year, day, first in (("2023", "2024-01-31", 0), ("__HIVE_DEFAULT_PARTITION__", "2024-02-01", 5)):
        folder = tmp_path / "table" / f"year={year}" / f"day%2Fof={day}"
        folder.mkdir(parents=True)
        pq.write_table(table(5, first), folder / "part-0.snappy.parquet")
        for name in ("_metadata.parquet", ".part.parquet", "part-0.crc"):
            (folder / name).write_text("no table")
    columns = {**SCHEMA["columns"], "year": {"type": "int", "default": 0}}
    columns["day"] = {"type": "time", "header": "day/of"}
    found, _ = rows(reader(columns=columns), tmp_path / "table")
    assert [(row["a"], row["year"]) for row in found] == [(i, 2023 if i < 5 else None) for i in range(10)]
    assert [row["day"] for row in found] == [1706659200] * 5 + [1706745600] * 5
    alone = {"a": {"type": "int", "default": 0, "header": "year"}, "kind": {"type": "string", "header": "day/of"}}
    assert len(rows(reader(columns=alone, other_columns="ignore"), tmp_path / "table")[0]) == 10
    parts = sorted(str(path) for path in (tmp_path / "table").rglob("part-0.snappy.parquet"))
    assert [row["a"] for row in rows(reader(), parts[::-1])[0]] == [*range(5, 10), *range(5)]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        *(
            ("int", text, number)
            for text, number in (("-7", -7), ("NA", None), ("0x10", UserError), ("1.0", UserError))
        ),
        *(("float", text, number) for text, number in (("1e3", 1000), ("NaN", None), ("inf", UserError))),
        *(("string", "a=b", "a=b"), ("string", "NA", None), ("bool", "YES", "true"), ("time", "NA", None)),
    ],
)
def test_what_a_folder_says_is_read_as_texts_are(tmp_path, reader, kind, value, found):
    folder = tmp_path / "table" / f"{urllib.parse.quote('x=y')}={urllib.parse.quote(value, safe='=')}"
    folder.mkdir(parents=True)
    pq.write_table(table(1), folder / "a.parquet")
    default = {"string": "", "bool": False}.get(kind, 0)
    columns = {**SCHEMA["columns"], "x": {"type": kind, "header": "x=y", "default": default}}
    made = reader(columns=columns, missing=["", "NA", "-999"])
    if found is UserError:
        with pytest.raises(UserError, match=r"a\.parquet: "):
            rows(made, tmp_path / "table")
    else:
        assert rows(made, tmp_path / "table")[0] == [{"a": 0, "kind": "x", "x": found}]


def test_files_may_have_other_types_and_orders_of_columns_as_long_as_the_schema_takes_them(tmp_path, reader):
    pq.write_table(table(2), tmp_path / "a.parquet")
    narrow = table(2, 2).select(["kind", "a"]).cast(pa.schema([("kind", pa.large_string()), ("a", pa.uint8())]))
    pq.write_table(narrow, tmp_path / "b.PARQUET")
    coded = table(2, 4).set_column(1, "kind", pa.array(["x", "y"]).dictionary_encode())
    pq.write_table(coded, tmp_path / "c.pq")
    assert rows(reader(), tmp_path)[0] == [{"a": i, "kind": "xy"[i % 2]} for i in range(6)]
    pq.write_table(pa.table({"a": [7], "kind": [1]}), tmp_path / "d.parquet")
    with pytest.raises(UserError, match=r"d\.parquet: column 'kind' is int64, and type string takes texts"):
        rows(reader(), tmp_path)


def damage(path: pathlib.Path, place: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[place : place + len(new) if place + len(new) else None] = new
    path.write_bytes(content)


NEVER = dt.datetime(2024, 1, 1)
MALFORMED = [  # what is written, what is done to the schema, and what is told
    ("no file at all", None, {}, "t.parquet: no such file or directory; dataset 'parquet' needs --source FILE"),
    (
        "no Parquet",
        lambda p: p.write_text("a,kind\n1,x\n"),
        {},
        "t.parquet: damaged, encrypted or no Parquet file (Par",
    ),
    (
        "cut off",
        lambda p: (pq.write_table(table(9), p), damage(p, 99, b""), p.write_bytes(p.read_bytes()[:-9])),
        {},
        "t",
    ),
    (
        "value",
        lambda p: (
            pq.write_table(table(99), p, compression="none", use_dictionary=False, write_page_checksum=True),
            damage(p, 200, b"\x07"),
        ),
        {},
        "CRC checksum verification failed",
    ),
    ("no rows", lambda p: pq.write_table(table(0), p), {}, "t.parquet: no rows"),
    ("column", lambda p: pq.write_table(table(9).drop(["a"]), p), {}, "t.parquet: has no column 'a' (it has 'kind')"),
    (
        "twice",
        lambda p: pq.write_table(pa.table([[1], [2], ["x"]], names=["a", "a", "kind"]), p),
        {},
        "t.parquet: column 'a' is there more than once (it has 'a', 'a', 'kind')",
    ),
    (
        "type",
        lambda p: pq.write_table(table(9).set_column(0, "a", pa.array([NEVER] * 9)), p),
        {},
        "t.parquet: column 'a' is timestamp[us], and type int takes whole numbers",
    ),
    (
        "row",
        lambda p: pq.write_table(table(40_000).set_column(0, "a", pa.array([*range(39_999), None])), p),
        {},
        "t.parquet: row 40,000: a: is missing, and the schema has no default for it",
    ),
    (
        "delimiter",
        lambda p: pq.write_table(table(9), p),
        {"delimiter": ";"},
        "schema.yaml: has a delimiter, and dataset 'parquet' has none",
    ),
    (
        "of images",
        lambda p: pq.write_table(table(9), p),
        {"image": "i", "label": "l", "classes": 3, "columns": None, "wide": None},
        "schema.yaml: is of images in TFRecord files; dataset 'parquet' needs one with columns",
    ),
]


@pytest.mark.parametrize(
    ("write", "changes", "told"), [row[1:] for row in MALFORMED], ids=[row[0] for row in MALFORMED]
)
def test_what_is_wrong_is_told_in_a_line_and_nothing_is_left(tmp_path, fails, write, changes, told):
    path = tmp_path / "t.parquet"
    if write:
        write(path)
    schema = {key: value for key, value in {**SCHEMA, **changes}.items() if value is not None}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema))
    flags = ("--dataset", "parquet", "--schema", str(tmp_path / "schema.yaml"), "--source", str(path))
    assert told in fails(*flags, "--output", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_folders_that_are_not_as_they_should_be(tmp_path, reader):
    made = reader(columns={**SCHEMA["columns"], "year": {"type": "int"}})
    folder = tmp_path / "table" / "year=20x4"
    folder.mkdir(parents=True)
    with pytest.raises(UserError, match=r"table: holds no \*\.parquet files"):
        rows(made, tmp_path / "table")
    pq.write_table(table(5), folder / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: year=20x4: '20x4' is no int"):
        rows(made, tmp_path / "table")
    with pytest.raises(UserError, match=r"a\.parquet: has no column 'year'"):
        rows(made, folder)
    pq.write_table(table(5, year=[1] * 5), folder / "a.parquet")
    folder.rename(folder.with_name("year=2024"))
    with pytest.raises(UserError, match=r"a\.parquet: column 'year' is there more than once"):
        rows(made, tmp_path / "table")
    path = str(tmp_path / "table" / "year=2024" / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: is given more than once"):
        rows(made, [path, str(tmp_path / "table")])
    with pytest.raises(UserError, match="dataset 'parquet' needs --schema FILE"):
        rows(ParquetReader(), path)
    with pytest.raises(UserError, match="dataset 'parquet' needs --source FILE"):
        made.cut(None, pieces=1, piece_bytes=1)


def test_a_file_that_changes_after_it_was_cut_is_refused(tmp_path, reader):
    pq.write_table(table(5), tmp_path / "t.parquet")
    cut = reader().cut(str(tmp_path / "t.parquet"), pieces=1, piece_bytes=1)
    pq.write_table(table(6), tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"t\.parquet: it has changed or gone"):
        list(reader().open(cut).batches(cut.pieces[0]))


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), ConnectionError("the store is gone")])
def test_a_disk_or_a_store_that_fails_is_no_damage_of_the_file(tmp_path, reader, monkeypatch, error):
    class Broken(io.BytesIO):
        def read(self, size: int = -1) -> bytes:
            raise error

    pq.write_table(table(5), tmp_path / "t.parquet")
    monkeypatch.setattr(parquet_table, "open_random_access", lambda file: Broken((tmp_path / "t.parquet").read_bytes()))
    with pytest.raises(OSError, match=str(error.args[-1])) as told:
        rows(reader(), tmp_path / "t.parquet")
    assert type(told.value) is type(error)
