"""TFRecord files of others: every value is there afterwards, and what cannot be read is told."""

import io
import struct
from typing import Any

import numpy as np
import pytest
import trips
from divided import whole
from PIL import Image

from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import find_reader

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
IMAGES = """
name: flowers
origin: made up
image: image/encoded
label: image/class/label
classes: [rose, lily, tulip]
label_offset: 1
"""
PIXELS = "{name: dots, origin: made up, image: pixels, label: y, classes: 3, shape: [4, 5, 3]}"


def row(i: int) -> dict[str, Any]:
    numbers = {"fare": i / 4, "trip/seconds": i * 1000 - 5, "at": [i + 0.5, -float(i)], "kind": i % 2}
    return {**numbers, "company": f"Ü{i % 7}".encode()}


def png(i: int, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(RANDOM.integers(0, 256, (8 + i % 3, 9, 3), np.uint8)).save(stream, kind)
    return stream.getvalue()


def test_a_table_has_every_value_and_the_defaults_where_there_is_none(tmp_path, write_records, options, held):
    rows = [row(i) for i in range(30)]
    del rows[3]["trip/seconds"]
    rows[4]["trip/seconds"], rows[5]["company"], rows[6]["company"], rows[7]["trip/seconds"] = (), b"", (), 99
    write_records(tmp_path / "a.tfrecord", rows[:11])
    write_records(tmp_path / "b.tfrecord.gz", rows[11:])
    manifest = convert(options(TABLE, tmp_path / "a.tfrecord", tmp_path / "b.tfrecord.gz"))
    assert (manifest.name, manifest.class_names) == ("trips", ("bad", "good"))
    assert held(tmp_path / "out") == [
        {
            "fare": i / 4,
            "seconds": -1 if i in (3, 4, 7) else i * 1000 - 5,
            "company": b"nobody" if i in (5, 6) else f"Ü{i % 7}".encode(),
            "east": i + 0.5,
            "north": -float(i),
            "label": i % 2,
            "kind": i % 2,
        }
        for i in range(30)
    ]
    assert manifest.feature("seconds").statistics.missing == 3 and manifest.feature("company").statistics.missing == 2


def test_rows_from_records_and_from_csv_make_the_same_files(tmp_path, write_records, content):
    rows = trips.rows(200)
    given = trips.write(tmp_path, rows, {**trips.SCHEMA, "filter": {"greater": ["seconds", 100]}})
    records = [{name: value for name, value in row.items() if value != ""} for row in rows]
    records = [{**row, "company": row.get("company", "").encode(), "tip": row["tip"].encode()} for row in records]
    write_records(tmp_path / "rows.tfrecord", records)
    other = {**given, "dataset": "tfrecord", "source": str(tmp_path / "rows.tfrecord")}
    made = []
    for flags in (given, other):
        out = tmp_path / flags["dataset"]
        # Fractions are drawn by positions, which are those of rows and those of bytes.
        convert(Options(**flags, output=str(out), shards=1, validation_fraction=0, test_fraction=0))
        made.append({name: data for name, data in content(out).items() if "-of-" in name})
    assert made[0] == made[1] and len(made[0]) == 3
    with open(given["schema"], "a") as file:
        file.write("delimiter: ';'\n")
    with pytest.raises(UserError, match="dataset 'trips' is no CSV files; leave delimiter out of its schema"):
        find_reader("tfrecord", schema=given["schema"]).cut(other["source"], pieces=1, piece_bytes=1 << 26)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_image_files_keep_their_bytes_and_get_their_classes(tmp_path, write_records, options, held, end):
    images = [png(i, ("PNG", "JPEG")[i % 2]) for i in range(12)]
    records = [
        {"image/encoded": image, "image/class/label": 1 + i % 3, "image/height": 9, "again": image}
        for i, image in enumerate(images)
    ]
    write_records(tmp_path / "in" / f"a.tfrecord{end}", records[:7])
    write_records(tmp_path / "in" / f"b.tfrecord{end}", [])
    write_records(tmp_path / "in" / f"c.tfrecord{end}", records[7:])
    manifest = convert(options(IMAGES, tmp_path / "in"))
    assert manifest.class_names == ("rose", "lily", "tulip") and manifest.feature("image").encoding == "image"
    assert held(tmp_path / "out") == [{"image": image, "label": i % 3} for i, image in enumerate(images)]


def test_a_class_may_be_a_text_and_small_images_become_pixels(tmp_path, write_records, options, held):
    images = [RANDOM.integers(0, 256, (6, 5), np.uint8) for _ in range(9)]
    names = (b"rose", b"lily", b"tulip")
    records = []
    for i, image in enumerate(images):
        Image.fromarray(image).save(stream := io.BytesIO(), "PNG")
        records.append({"image/encoded": stream.getvalue(), "image/class/label": names[i % 3]})
    path = write_records(tmp_path / "in.tfrecord", records)
    manifest = convert(options(IMAGES, path))
    assert manifest.feature("image").shape == (6, 5, 1) and manifest.arguments["schema"]["label_offset"] == 1
    assert held(tmp_path / "out") == [{"image": image.tobytes(), "label": i % 3} for i, image in enumerate(images)]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_pixels_are_those_of_the_records(tmp_path, write_records, options, held, end):
    images = RANDOM.integers(0, 256, (40, 4, 5, 3), np.uint8)
    records = [{"pixels": image.tobytes(), "y": i % 3} for i, image in enumerate(images)]
    path = write_records(tmp_path / f"x{end}", records)
    manifest = convert(options(PIXELS, path))
    assert (manifest.feature("image").shape, manifest.class_names) == ((4, 5, 3), ("0", "1", "2"))
    assert held(tmp_path / "out") == [{"image": image.tobytes(), "label": i % 3} for i, image in enumerate(images)]


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("a", "b"), {"train": "ab"}),
        (("train-00000-of-00001", "validation-00000-of-00001"), {"train": "a", "validation": "b"}),
        (("x_train0.tfrecord", "x_val0.tfrecord", "x-test.tfrec.gz"), {"train": "a", "validation": "b", "test": "c"}),
        (("train/0", "eval/0", "dev/0"), {"train": "a", "test": "b", "validation": "c"}),
        (("test/a-train", "test/b-valid"), {"train": "a", "validation": "b"}),
        (("latest", "interval", "constrained"), {"train": "acb"}),
        (("one.tfrecord", "README.md", ".hidden", "_SUCCESS"), {"train": "a"}),
    ],
)
def test_names_decide_the_splits(tmp_path, write_records, schema, names, splits):
    for i, name in enumerate(names):
        write_records(tmp_path / "in" / name, [{"image": png(0), "label": i}])
    text = "{name: t, origin: t, image: image, label: label, classes: [a, b, c, d]}"
    source = whole(find_reader("tfrecord", schema=schema(text)), str(tmp_path / "in"), piece_bytes=100)
    found = {s: "".join(sorted("abcd"[i] for i in columns["label"])) for s, columns in source.splits.items()}
    assert found == {split: "".join(sorted(letters)) for split, letters in splits.items()}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train-0", "test-0", "more-0"), "more-0: its name says no split, and that of test-0 does (test); rename it"),
        (("train_test", "a"), "train_test: its name says test and train; rename it"),
        (("test-0", "val-0"), "test-0: is for test by its name, and no file is for train"),
        ((), "holds no files"),
    ],
)
def test_names_that_contradict_each_other_are_refused(tmp_path, write_records, rejected, names, message):
    (tmp_path / "in").mkdir()
    for name in names:
        write_records(tmp_path / "in" / name, [{"image/encoded": png(0), "image/class/label": 1}])
    assert message in rejected(IMAGES, tmp_path / "in")


def test_without_a_schema_the_features_are_told(tmp_path, write_records, fails):
    record = {"image/encoded": bytes(1234), "image/class/label": 5, "sizes": [1.5, 2.0], "tags": [b"a", b"b"], "no": ()}
    path = write_records(tmp_path / "x.tfrecord", [record])
    line = fails("--dataset", "tfrecord", "--source", path, "--output", tmp_path / "out")
    assert "needs --schema FILE" in line and not (tmp_path / "out").exists()
    assert (
        f"the first record of {path} has image/class/label (1 int64 value), image/encoded (1,234 bytes), "
        "no (no value), sizes (2 float values), tags (2 bytes values)\n"
    ) in line


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (TABLE, {"kind": 2}, "kind: '2' is no class (known: 0 to 1)"),
        (TABLE, {"kind": 0.5}, "kind holds 1 float value, not one int64"),
        (TABLE, {"kind": None}, "kind is missing, and nothing can be learnt of a row without what is predicted"),
        (TABLE, {"at": 0.5}, "at holds 1 float value, none at [1]"),
        (TABLE, {"company": b"\xff\xfe"}, "company: b'\\xff\\xfe' is not UTF-8"),
        (TABLE, {"color": 1}, "unknown feature 'color' (known: at, company, fare, kind, trip/seconds); add it to the "),
        (IMAGES, {"image/class/label": 4}, "image/class/label is 4, no class of 1 to 3"),
        (IMAGES, {"image/class/label": b"lilly"}, "image/class/label: unknown class 'lilly'; did you mean 'lily'?"),
        (IMAGES, {"image/encoded": ()}, "image/encoded holds no value"),
        (PIXELS, {"pixels": bytes(59)}, "pixels holds 59 bytes, not the 60 of 4 x 5 x 3"),
    ],
)
def test_a_record_that_is_not_what_the_schema_says_is_named(tmp_path, write_records, rejected, text, change, message):
    good = row(1) if text == TABLE else {"image/encoded": png(0), "image/class/label": 1, "pixels": bytes(60), "y": 1}
    wrong = {key: value for key, value in {**good, **change}.items() if value is not None}
    before = write_records(tmp_path / "before.tfrecord", [good])
    path = write_records(tmp_path / "x.tfrecord", [good, wrong, good])
    second = 16 + struct.unpack_from("<Q", path.read_bytes())[0]
    assert f"{path}: record at byte {second}: {message}" in rejected(text, before, path)


def test_what_is_no_image_file_is_named(tmp_path, write_records, rejected):
    path = write_records(tmp_path / "x", [{"image/encoded": b"GIF89a", "image/class/label": 1}])
    assert f"{path}: record at byte 0: is no PNG or JPEG image" in rejected(IMAGES, path)


def test_what_is_no_example_is_named_with_the_byte(tmp_path, write_records, rejected):
    for record in (b"", b"no Example", b"\x0a\x00"):
        path = write_records(tmp_path / "x", [{"pixels": bytes(60), "y": 0}, record])
        size = 16 + struct.unpack_from("<Q", path.read_bytes())[0]
        assert f"{path}: record at byte {size}: is no tf.train.Example with features" in rejected(PIXELS, path)
    path.write_bytes(b"")
    assert "no records" in rejected(PIXELS, path)
    path.write_bytes(b"a,b\n1,2\n")
    assert "no TFRecord file" in rejected(PIXELS, path)
