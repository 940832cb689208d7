"""TFRecord files of other programs: every value is kept, and what cannot be read is named."""

import gzip
import io
import pathlib
import re
import struct
from typing import Any

import numpy as np
import pytest
import trips
from dataset_files import parse_examples, read_folder, write_records
from hypothesis import given
from hypothesis import strategies as st
from opened import read_all
from PIL import Image

from common.errors import UserError
from common.storage.files import stat_file
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources import tfrecords
from components.convert.sources.registry import find_source

RANDOM = np.random.default_rng(0)
TABLE = """
name: trips
origin: made up
columns:
  fare: {type: float}
  seconds: {type: int, default: -1, header: trip/seconds}
  company: {type: string, default: nobody}
  east: {type: float, header: "at[0]"}
  north: {type: float, header: "at[1]"}
  kind: {type: int}
label: {column: kind, classes: [bad, good]}
deep: [{column: fare, numeric: z_score}, {column: seconds, numeric: z_score}, {column: company, vocabulary: 5}]
missing: ["", nan, "99"]
"""
FILES = (
    "{name: dots, origin: made up, image: file, label: y, classes: [rose, lily, tulip], "
    "label_offset: 1}"
)
PIXELS = "{name: dots, origin: made up, image: pixels, label: y, classes: 3, shape: [4, 5, 3]}"
AGES = PIXELS.replace("y, classes: 3", "{regression: age}")
BOXES = PIXELS.replace("y, classes: 3", "{regression: {left: 'box[0]', age: age, n: y}}")
TAGS = (
    "{name: dots, origin: made up, image: file, label: {multi_label: {a: 'tags[0]', b: 'tags[1]'}}}"
)


@pytest.fixture
def read(tmp_path):
    """Reads TFRecord files as a schema of this text says."""

    def run(text: str, *paths: pathlib.Path):
        (tmp_path / "schema.yaml").write_text(text)
        return read_all(
            find_source("tfrecord", schema=str(tmp_path / "schema.yaml")), [*map(str, paths)]
        )

    return run


def row(i: int) -> dict[str, Any]:
    numbers = {
        "fare": i / 4,
        "trip/seconds": i * 1000 - 5,
        "at": [i + 0.5, -float(i)],
        "kind": i % 2,
    }
    return {**numbers, "company": f"Ü{i % 7}".encode()}


def dots(i: int, kind: str = "PNG") -> dict[str, Any]:
    """Returns a record with an image, as a file and as pixels, and things to predict of it."""
    pixels = np.full((4, 5, 3), i, np.uint8)
    Image.fromarray(pixels).save(stream := io.BytesIO(), kind)
    targets = {
        "y": 1 + i % 2,
        "age": i / 3,
        "box": [i / 7, 1.0],
        "tags": [float(i % 2), float(i > 5)],
    }
    return {"file": stream.getvalue(), "pixels": pixels.tobytes(), **targets}


def test_table_values_and_defaults(tmp_path, read):
    rows = [row(i) for i in range(30)]
    del rows[3]["trip/seconds"]
    rows[4]["trip/seconds"], rows[5]["company"], rows[6]["company"], rows[7]["trip/seconds"] = (
        (),
        b"",
        (),
        99,
    )
    paths = [
        write_records(tmp_path / "a.tfrecord", rows[:11]),
        write_records(tmp_path / "b.tfrecord.gz", rows[11:]),
    ]
    opened = read(TABLE, *paths)
    columns = {name: values.tolist() for name, values in opened.splits["train"].items()}
    assert columns["seconds"] == [-1 if i in (3, 4, 7) else i * 1000 - 5 for i in range(30)]
    assert columns["company"] == [
        b"nobody" if i in (5, 6) else f"Ü{i % 7}".encode() for i in range(30)
    ]
    assert [*zip(columns["east"], columns["north"], strict=True)] == [
        (i + 0.5, -i) for i in range(30)
    ]
    (block,) = opened.blocks["train"]
    assert (block.missing["seconds"].sum(), block.missing["company"].sum()) == (3, 2)


def test_table_equals_csv(tmp_path):
    rows = trips.rows(200)
    flags = trips.write(tmp_path, rows, {**trips.SCHEMA, "filter": "seconds > 100"})
    records = [{name: value for name, value in row.items() if value != ""} for row in rows]
    records = [
        {**row, "company": row.get("company", "").encode(), "tip": row["tip"].encode()}
        for row in records
    ]
    path = write_records(tmp_path / "rows.tfrecord", records)
    outputs = []
    for source in ({}, {"dataset": "tfrecord", "source": str(path)}):
        output = tmp_path / f"out{len(outputs)}"
        convert(Options(**{**flags, **source}, output=str(output), shards=1))
        outputs.append(
            {
                name: data
                for name, data in read_folder(output).items()
                if name.endswith(("tfrecord", "hashes"))
            }
        )
    assert outputs[0] == outputs[1] and len(outputs[0]) == 6


def test_image_files_keep_bytes(tmp_path, read):
    records = [dots(i, ("PNG", "JPEG")[i % 2]) for i in range(12)]
    Image.new("L", (9, 8)).save(stream := io.BytesIO(), "PNG")
    records.append({"file": stream.getvalue(), "y": b"tulip"})
    for name, part in (("a", records[:7]), ("b", []), ("c", records[7:])):
        write_records(tmp_path / "in" / name, part)
    opened = read(FILES, tmp_path / "in")
    assert opened.splits["train"]["image"].to_pylist() == [record["file"] for record in records]
    assert opened.splits["train"]["label"].tolist() == [*(i % 2 for i in range(12)), 2]
    assert opened.examples.class_names == ("rose", "lily", "tulip")


@pytest.mark.parametrize(
    ("text", "labels", "others", "figures"),
    [
        (PIXELS, lambda i: 1 + i % 2, "age, box, file, tags", 2),
        (AGES, lambda i: i / 3, "box, file, tags, y", 1),
        (BOXES, lambda i: [i / 7, i / 3, 1 + i % 2], "file, tags", 1),
        (TAGS, lambda i: [i % 2, i > 5], "age, box, pixels, y", 4),
    ],
)
def test_image_pixels_and_targets(tmp_path, capsys, text, labels, others, figures):
    path = write_records(tmp_path / "a.tfrecord", [dots(i) for i in range(12)])
    (tmp_path / "schema.yaml").write_text(text)
    flags = {
        "schema": str(tmp_path / "schema.yaml"),
        "validation_fraction": 0,
        "test_fraction": 0,
        "shards": 1,
    }
    manifest = convert(
        Options(dataset="tfrecord", source=str(path), output=str(tmp_path / "out"), **flags)
    )
    feature = manifest.feature("label")
    assert manifest.feature("image").shape == (4, 5, 3)
    (shard,) = manifest.splits["train"].shards
    for i, record in enumerate(parse_examples((tmp_path / "out" / shard.file).read_bytes())):
        assert record["image"] == [dots(i)["pixels"]]
        assert np.array_equal(record["label"], np.array(labels(i), feature.dtype).reshape(-1))
    assert (tmp_path / "out" / "dataset.html").read_text().count("<figure>") == figures
    assert f"left out of the records: {others}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["a", "b"], ["train", "train"]),
        (["train-00000-of-00001", "validation-00000-of-00001"], ["train", "validation"]),
        (
            ["x_train0.tfrecord", "x_val0.tfrecord", "x-test.tfrec.gz"],
            ["train", "validation", "test"],
        ),
        (["train/0", "eval/0", "dev/0"], ["train", "test", "validation"]),
        (["test/a-train", "test/b-valid"], ["train", "validation"]),
        (["latest", "interval", "constrained"], ["train", "train", "train"]),
        (["one.tfrecord", "README.md", ".hidden", "_SUCCESS"], ["train"]),
    ],
)
def test_names_decide_splits(tmp_path, read, names, splits):
    for i, name in enumerate(names):
        write_records(tmp_path / "in" / name, [{"pixels": bytes(60), "y": i % 3}])
    opened = read(PIXELS, tmp_path / "in").splits.items()
    labels = sorted(
        (label, split) for split, columns in opened for label in columns["label"].tolist()
    )
    assert [split for _, split in labels] == splits


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train-0", "test-0", "more-0"), "more-0: its name says no split, and that of "),
        (("train_test", "a"), "train_test: its name says test and train; rename it"),
        (("test-0", "val-0"), "test-0: is for test by its name, and no file is for train"),
        ((), "holds no files"),
    ],
)
def test_contradicting_names_are_refused(tmp_path, read, names, message):
    (tmp_path / "in").mkdir()
    for name in names:
        write_records(tmp_path / "in" / name, [dots(0)])
    with pytest.raises(UserError, match=message):
        read(FILES, tmp_path / "in")


def test_missing_schema_lists_features(tmp_path):
    record = {
        "image/encoded": bytes(1234),
        "image/class/label": 5,
        "sizes": [1.5, 2.0],
        "tags": [b"a", b"b"],
        "no": (),
    }
    path = write_records(tmp_path / "x.tfrecord", [record])
    features = (
        "image/class/label (1 int64 value), image/encoded (1,234 bytes), "
        "no (no value), sizes (2 float values), tags (2 bytes values)"
    )
    with pytest.raises(
        UserError, match=f"needs --schema FILE, .*{re.escape(f'of {path} has {features}')}$"
    ):
        find_source("tfrecord").files(str(path))


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (TABLE, {"kind": 2}, "kind: '2' is no class (known: 0 to 1)"),
        (TABLE, {"kind": 0.5}, "kind holds 1 float value, not one int64"),
        (
            TABLE,
            {"kind": ()},
            "kind: is missing, and nothing can be learnt of a row without what is predicted",
        ),
        (TABLE, {"at": 0.5}, "at holds 1 float value, none at [1]"),
        (TABLE, {"company": b"\xff\xfe"}, "is no text in UTF-8 of at most 16 MiB"),
        (
            TABLE,
            {"color": 1},
            "unknown feature 'color' (known: at, company, fare, kind, trip/seconds); add it to "
            "the ",
        ),
        (FILES, {"y": 4}, "y is 4, no class of 1 to 3"),
        (FILES, {"y": b"lilly"}, "y: unknown class 'lilly'; did you mean 'lily'?"),
        (FILES, {"file": ()}, "file holds no value"),
        (FILES, {"file": b"GIF89a"}, "is no PNG or JPEG image"),
        (PIXELS, {"pixels": bytes(59)}, "pixels holds 59 bytes, not the 60 of 4 x 5 x 3"),
        (AGES, {"age": float("nan")}, "age is nan, no finite number"),
        (AGES, {"age": b"old"}, "age holds 3 bytes, not one float"),
        (BOXES, {"box": ()}, "box holds no value, none at [0]"),
        (TAGS, {"tags": [1, 2]}, "tags is 2, neither 0 nor 1"),
    ],
)
def test_wrong_record_is_named(tmp_path, read, text, change, message):
    good = row(1) if text == TABLE else dots(1)
    path = write_records(tmp_path / "x.tfrecord", [good, {**good, **change}, good])
    second = 16 + struct.unpack_from("<Q", path.read_bytes())[0]
    with pytest.raises(
        UserError, match=re.escape(f"{path}: record at byte {second}: ") + ".*" + re.escape(message)
    ):
        read(text, write_records(tmp_path / "before.tfrecord", [good]), path)


def test_file_without_examples_is_named(tmp_path, read):
    path = write_records(tmp_path / "x", [dots(0)])
    start, end = path.stat().st_size, "is no tf.train.Example with features"
    contents = [
        write_records(path, [dots(0), record]).read_bytes()
        for record in (b"", b"no Example", b"\x0a\x00")
    ]
    messages = [f"record at byte {start}: {end}"] * 3 + [
        "no records",
        "damaged, or no TFRecord file",
    ]
    for content, message in zip([*contents, b"", b"a,b\n1,2\n"], messages, strict=True):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^{path}: {message}"):
            read(PIXELS, path)


def test_delimiter_is_refused(tmp_path, read):
    path = write_records(tmp_path / "x", [row(0)])
    with pytest.raises(
        UserError, match="dataset 'trips' is no CSV files; leave delimiter out of its schema"
    ):
        read(f"{TABLE}delimiter: ';'\n", path)


def payloads(size: int) -> bytes:
    """Returns so many bytes, many of them zeros, which begin what could be lengths."""
    return (
        (RANDOM.integers(0, 256, size, np.uint8) * (RANDOM.random(size) < 0.2))
        .astype(np.uint8)
        .tobytes()
    )


def values(path: pathlib.Path) -> list[bytes]:
    return [record.value("x", "bytes") for record in tfrecords.read_records(stat_file(path))]


@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    levels=st.lists(st.integers(0, 9), max_size=3),
    cut=st.integers(1, 15),
)
def test_packed_or_cut_file(tmp_path_factory, sizes, levels, cut):
    """A file gives all its records, however it is packed, and is refused if its end is missing."""
    path, records = tmp_path_factory.mktemp("records") / "x", [payloads(size) for size in sizes]
    data = write_records(path, [{"x": record} for record in records]).read_bytes()
    ends = np.linspace(0, len(data), len(levels) + 1).astype(int).tolist()
    if levels:
        parts = zip(levels, ends, ends[1:], strict=False)
        data = b"".join(gzip.compress(data[start:end], level) for level, start, end in parts)
    path.write_bytes(data)
    assert values(path) == records
    path.write_bytes(data[:-cut])
    with pytest.raises(UserError, match=f"^{path}: damaged"):
        values(path)


def test_damaged_record_is_named(tmp_path):
    path = write_records(tmp_path / "x", [{"x": payloads(100)} for _ in range(50)])
    data = path.read_bytes()
    size = len(data) // 50
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(
            UserError, match=f"{path}: damaged.*record at byte {at // size * size:,}$"
        ):
            values(path)
