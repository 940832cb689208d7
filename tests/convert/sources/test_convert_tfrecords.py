"""TFRecord files of others: every value is there afterwards, and what cannot be read is named."""

import gzip
import io
import pathlib
import struct
from typing import Any

import numpy as np
import pytest
import trips
from hypothesis import HealthCheck, given, settings
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
IMAGES = """
name: flowers
origin: made up
image: image/encoded
label: image/class/label
classes: [rose, lily, tulip]
label_offset: 1
"""
PIXELS = "{name: dots, origin: made up, image: pixels, label: y, classes: 3, shape: [4, 5, 3]}"


@pytest.fixture
def schema(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "schema.yaml").write_text(text)
        return str(tmp_path / "schema.yaml")

    return write


@pytest.fixture
def options(tmp_path, schema):
    def make(text: str, *sources: pathlib.Path, **others: Any) -> Options:
        source = tuple(map(str, sources)) if len(sources) > 1 else str(sources[0])
        given = {"output": str(tmp_path / "out"), "shards": 1, "validation_fraction": 0, "test_fraction": 0, **others}
        return Options(dataset="tfrecord", schema=schema(text), source=source, **given)

    return make


@pytest.fixture
def rejected(tmp_path, schema, fails):
    """Sees the command refuse the sources, and returns the line that says why."""

    def run(text: str, *sources: object, flags: tuple = ()) -> str:
        given = ("--source", *sources) if sources else ()
        line = fails("--dataset", "tfrecord", *given, "--schema", schema(text), "--output", tmp_path / "out", *flags)
        assert not (tmp_path / "out").exists()
        return line

    return run


def row(i: int) -> dict[str, Any]:
    numbers = {"fare": i / 4, "trip/seconds": i * 1000 - 5, "at": [i + 0.5, -float(i)], "kind": i % 2}
    return {**numbers, "company": f"Ü{i % 7}".encode()}


def png(i: int, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(RANDOM.integers(0, 256, (8 + i % 3, 9, 3), np.uint8)).save(stream, kind)
    return stream.getvalue()


def test_table_values_and_defaults(tmp_path, write_records, options, held):
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


def test_table_equals_csv(tmp_path, write_records, content):
    rows = trips.rows(200)
    given = trips.write(tmp_path, rows, {**trips.SCHEMA, "filter": "seconds > 100"})
    records = [{name: value for name, value in row.items() if value != ""} for row in rows]
    records = [{**row, "company": row.get("company", "").encode(), "tip": row["tip"].encode()} for row in records]
    write_records(tmp_path / "rows.tfrecord", records)
    other = {**given, "dataset": "tfrecord", "source": str(tmp_path / "rows.tfrecord")}
    made = []
    for flags in (given, other):
        out = tmp_path / flags["dataset"]
        convert(Options(**flags, output=str(out), shards=1))
        made.append({name: data for name, data in content(out).items() if name.endswith(("tfrecord", "hashes"))})
    assert made[0] == made[1] and len(made[0]) == 6
    with open(given["schema"], "a") as file:
        file.write("delimiter: ';'\n")
    with pytest.raises(UserError, match="dataset 'trips' is no CSV files; leave delimiter out of its schema"):
        read_all(find_source("tfrecord", schema=given["schema"]), other["source"])


@pytest.mark.parametrize("end", ["", ".gz"])
def test_image_files_keep_bytes(tmp_path, write_records, options, held, end):
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


def test_class_names_and_small_images(tmp_path, write_records, options, held):
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
def test_pixels_are_kept(tmp_path, write_records, options, held, end):
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
def test_names_decide_splits(tmp_path, write_records, schema, names, splits):
    for i, name in enumerate(names):
        write_records(tmp_path / "in" / name, [{"image": png(0), "label": i}])
    text = "{name: t, origin: t, image: image, label: label, classes: [a, b, c, d]}"
    source = read_all(find_source("tfrecord", schema=schema(text)), str(tmp_path / "in"))
    found = {s: "".join(sorted("abcd"[i] for i in columns["label"])) for s, columns in source.splits.items()}
    assert found == {split: "".join(sorted(letters)) for split, letters in splits.items()}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train-0", "test-0", "more-0"), "more-0: its name says no split, and that of "),
        (("train_test", "a"), "train_test: its name says test and train; rename it"),
        (("test-0", "val-0"), "test-0: is for test by its name, and no file is for train"),
        ((), "holds no files"),
    ],
)
def test_contradicting_names_are_refused(tmp_path, write_records, rejected, names, message):
    (tmp_path / "in").mkdir()
    for name in names:
        write_records(tmp_path / "in" / name, [{"image/encoded": png(0), "image/class/label": 1}])
    assert message in rejected(IMAGES, tmp_path / "in")


def test_features_are_listed_without_schema(tmp_path, write_records, fails):
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
        (TABLE, {"kind": None}, "is missing, and nothing can be learnt of a row without what is predicted"),
        (TABLE, {"at": 0.5}, "at holds 1 float value, none at [1]"),
        (TABLE, {"company": b"\xff\xfe"}, "is no text in UTF-8 of at most 16 MiB"),
        (TABLE, {"color": 1}, "unknown feature 'color' (known: at, company, fare, kind, trip/seconds); add it to the "),
        (IMAGES, {"image/class/label": 4}, "image/class/label is 4, no class of 1 to 3"),
        (IMAGES, {"image/class/label": b"lilly"}, "image/class/label: unknown class 'lilly'; did you mean 'lily'?"),
        (IMAGES, {"image/encoded": ()}, "image/encoded holds no value"),
        (PIXELS, {"pixels": bytes(59)}, "pixels holds 59 bytes, not the 60 of 4 x 5 x 3"),
    ],
)
def test_wrong_record_is_named(tmp_path, write_records, rejected, text, change, message):
    good = row(1) if text == TABLE else {"image/encoded": png(0), "image/class/label": 1, "pixels": bytes(60), "y": 1}
    wrong = {key: value for key, value in {**good, **change}.items() if value is not None}
    before = write_records(tmp_path / "before.tfrecord", [good])
    path = write_records(tmp_path / "x.tfrecord", [good, wrong, good])
    second = 16 + struct.unpack_from("<Q", path.read_bytes())[0]
    line = rejected(text, before, path)
    assert f"{path}: record at byte {second}: " in line and message in line


def test_wrong_image_is_named(tmp_path, write_records, rejected):
    path = write_records(tmp_path / "x", [{"image/encoded": b"GIF89a", "image/class/label": 1}])
    assert f"{path}: record at byte 0: is no PNG or JPEG image" in rejected(IMAGES, path)


def test_no_example_is_named_with_byte(tmp_path, write_records, rejected):
    for record in (b"", b"no Example", b"\x0a\x00"):
        path = write_records(tmp_path / "x", [{"pixels": bytes(60), "y": 0}, record])
        size = 16 + struct.unpack_from("<Q", path.read_bytes())[0]
        assert f"{path}: record at byte {size}: is no tf.train.Example with features" in rejected(PIXELS, path)
    path.write_bytes(b"")
    assert "no records" in rejected(PIXELS, path)
    path.write_bytes(b"a,b\n1,2\n")
    assert "no TFRecord file" in rejected(PIXELS, path)


TARGETS = {
    "regression": ("{regression: age}", (), np.float32, lambda i: i / 3),
    "several": ("{regression: {left: 'box[0]', age: age, count: n}}", (3,), np.float32, lambda i: [i / 7, i / 3, i]),
    "multi_label": ("{multi_label: {rose: 'tags[0]', lily: 'tags[1]'}}", (2,), np.int64, lambda i: [i % 2, i > 5]),
}


@pytest.mark.parametrize("what", TARGETS)
@pytest.mark.parametrize("stored", ["files", "packed", "pixels"])
def test_images_with_targets(tmp_path, write_records, options, examples, capsys, what, stored):
    label, shape, dtype, value = TARGETS[what]
    pixels = [np.full((4, 5, 3), i, np.uint8) for i in range(12)]
    files = [io.BytesIO() for _ in pixels]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file, "PNG")
    images = [image.tobytes() if stored == "pixels" else f.getvalue() for f, image in zip(files, pixels, strict=True)]
    rows = [
        {"image": images[i], "age": i / 3, "box": [i / 7, 1.0], "n": i, "tags": [i % 2, int(i > 5)]} for i in range(12)
    ]
    path = write_records(tmp_path / ("a.tfrecord.gz" if stored == "packed" else "a.tfrecord"), rows)
    text = f"{{name: dots, origin: made up, image: image, label: {label}{', shape: [4, 5, 3]' * (stored == 'pixels')}}}"
    manifest = convert(options(text, path))
    feature = manifest.feature("label")
    assert (feature.shape, feature.dtype) == (shape, np.dtype(dtype).name)
    (shard,) = manifest.splits["train"].shards
    for i, record in enumerate(examples((tmp_path / "out" / shard.file).read_bytes())):
        assert record["image"] == [pixels[i].tobytes()]
        assert np.array_equal(np.array(record["label"], dtype), np.array(value(i), dtype).reshape(-1))
    page = (tmp_path / "out" / "dataset.html").read_text()
    assert page.count("<figure>") == (4 if what == "multi_label" else 1)
    others = {"regression": "box, n, tags", "several": "tags", "multi_label": "age, box, n"}[what]
    assert f"left out of the records: {others}\n" in capsys.readouterr().out


def test_several_labels_may_be_floats(tmp_path, write_records, schema):
    path = write_records(tmp_path / "a.tfrecord", [{"pixels": bytes(60), "tags": [0.0, 1.0]}])
    text = "{name: t, origin: t, image: pixels, shape: [4, 5, 3], label: {multi_label: {a: 'tags[0]', b: 'tags[1]'}}}"
    source = read_all(find_source("tfrecord", schema=schema(text)), str(path))
    assert source.splits["train"]["label"].tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("label", "values", "message"),
    [
        ("{regression: age}", {"age": float("nan")}, "age is nan, no finite number"),
        ("{regression: age}", {"age": b"old"}, "age holds 3 bytes, not one float"),
        ("{regression: 'box[2]'}", {"box": [1.0, 2.0]}, "box holds 2 float values, none at [2]"),
        ("{multi_label: {a: 'tags[0]', b: 'tags[1]'}}", {"tags": [1, 2]}, "tags is 2, neither 0 nor 1"),
    ],
)
def test_wrong_target_is_named(tmp_path, write_records, rejected, label, values, message):
    path = write_records(tmp_path / "a.tfrecord", [{"image": b"", **values}])
    text = f"{{name: dots, origin: made up, image: image, label: {label}}}"
    assert f"{path}: record at byte 0: {message}" in rejected(text, path)


ANY = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def payloads(size: int) -> bytes:
    """So many bytes, many of them zeros, which begin what could be lengths."""
    return (RANDOM.integers(0, 256, size, np.uint8) * (RANDOM.random(size) < 0.2)).astype(np.uint8).tobytes()


def read(path: pathlib.Path) -> list[bytes]:
    """Returns the image of each record."""
    return [record.value("x", "bytes") for record in tfrecords.read_records(stat_file(path))]


@ANY
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    levels=st.lists(st.integers(0, 9), max_size=3),
    cut=st.integers(1, 15),
)
def test_records_packed_or_not_and_cut(tmp_path, write_records, sizes, levels, cut):
    """A file gives all its records, however it is packed, and is refused if its end is missing."""
    values = [payloads(size) for size in sizes]
    data = write_records(tmp_path / "x", [{"x": value} for value in values]).read_bytes()
    ends = np.linspace(0, len(data), len(levels) + 1).astype(int).tolist()
    if levels:
        parts = zip(levels, ends, ends[1:], strict=False)
        data = b"".join(gzip.compress(data[start:end], level) for level, start, end in parts)
    path = tmp_path / "y"
    path.write_bytes(data)
    assert read(path) == values
    path.write_bytes(data[:-cut])
    with pytest.raises(UserError, match=f"^{path}: damaged"):
        read(path)


def test_damage_is_named(tmp_path, write_records):
    path = write_records(tmp_path / "x", [{"x": payloads(100)} for _ in range(50)])
    data = path.read_bytes()
    size = len(data) // 50
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(UserError, match=f"{path}: damaged.*record at byte {at // size * size:,}$"):
            read(path)
