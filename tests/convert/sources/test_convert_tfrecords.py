"""TFRecord files of other programs: every value is kept, and what cannot be read is named."""

import gzip
import re
import struct

import numpy as np
import pytest
from dataset_files import encode_image, write_records
from hypothesis import given
from hypothesis import strategies as st
from opened import read_all

from common.errors import UserError
from common.storage.files import stat_file
from components.convert.sources import tfrecords
from components.convert.sources.registry import find_source
from tests.errors import user_error

RANDOM = np.random.default_rng(0)
FILES = (
    "{name: dots, origin: made up, image: file, label: y, classes: [rose, lily, tulip], "
    "label_offset: 1}"
)
PIXELS = "{name: dots, origin: made up, image: pixels, label: y, classes: 3, shape: [4, 5, 3]}"
AGES = PIXELS.replace("y, classes: 3", "{regression: age}")
BOXES = PIXELS.replace("y, classes: 3", "{regression: {left: 'box[0]', age: age, n: y}}")
TAGS = PIXELS.replace("y, classes: 3", "{multi_label: {a: 'tags[0]', b: 'tags[1]'}}")


@pytest.fixture
def read(tmp_path):
    """Reads TFRecord files as a schema of this text says."""

    def run(text, *paths):
        schema = tmp_path / "schema.yaml"
        schema.write_text(text)
        return read_all(find_source("tfrecord", schema=str(schema)), [*map(str, paths)])

    return run


def dots(i, kind="PNG"):
    """Returns a record with an image, as a file and as pixels, and things to predict of it."""
    pixels = np.full((4, 5, 3), i, np.uint8)
    return {
        "file": encode_image(pixels, kind),
        "pixels": pixels.tobytes(),
        "y": 1 + i % 2,
        "age": i / 3,
        "box": [i / 7, 1.0],
        "tags": [float(i % 2), float(i > 5)],
    }


def test_image_files_keep_bytes(tmp_path, read):
    records = [dots(i, ("PNG", "JPEG")[i % 2]) for i in range(12)]
    records.append({"file": encode_image(np.zeros((8, 9), np.uint8)), "y": b"tulip"})
    for name, part in (("a", records[:7]), ("b", []), ("c", records[7:])):
        write_records(tmp_path / "in" / name, part)
    opened = read(FILES, tmp_path / "in")
    assert opened.splits["train"]["image"].to_pylist() == [record["file"] for record in records]
    assert opened.splits["train"]["label"].tolist() == [*[0, 1] * 6, 2]
    assert opened.examples.class_names == ("rose", "lily", "tulip")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (PIXELS, lambda i: 1 + i % 2),
        (BOXES, lambda i: [i / 7, i / 3, 1 + i % 2]),
        (TAGS, lambda i: [i % 2, i > 5]),
    ],
)
def test_image_pixels_and_targets(tmp_path, read, capsys, text, label):
    path = write_records(tmp_path / "a.tfrecord", [dots(i) for i in range(12)])
    columns = read(text, path).splits["train"]
    expected = np.arange(12).reshape(12, 1, 1, 1) * np.ones((4, 5, 3), int)
    assert np.array_equal(columns["image"], expected)
    np.testing.assert_allclose(columns["label"], [label(i) for i in range(12)], rtol=1e-7)
    assert "left out of the records: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "splits"),
    {
        "x_train0.tfrecord x_val0.tfrecord x-test.tfrec": "train validation test",
        "train/0 eval/0 dev/0": "train test validation",
        "test/a-train test/b-valid": "train validation",
        "latest interval constrained": "train train train",
        "train-0 test-0 more-0": UserError("more-0: its name says no split"),
        "train_test a": UserError("says test and train"),
        "test-0 val-0": UserError("needs files for train"),
        "": UserError("holds no files"),
    }.items(),
)
def test_names_decide_splits(tmp_path, read, names, splits):
    (tmp_path / "in").mkdir()
    for i, name in enumerate(names.split()):
        write_records(tmp_path / "in" / name, [{"pixels": bytes(60), "y": i % 3}])
    if isinstance(splits, UserError):
        with user_error(str(splits)):
            read(PIXELS, tmp_path / "in")
        return
    split_of = {}
    for split, columns in read(PIXELS, tmp_path / "in").splits.items():
        split_of |= dict.fromkeys(columns["label"].tolist(), split)
    assert [split_of[i] for i in range(len(split_of))] == splits.split()


def test_missing_schema_lists_features(tmp_path):
    record = {"image/encoded": bytes(1234), "label": 5, "sizes": [1.5, 2.0], "no": ()}
    path = write_records(tmp_path / "x.tfrecord", [record])
    features = "image/encoded (bytes[1]), label (int64[1]), no (bytes[0]), sizes (float[2])"
    message = f"needs --schema FILE, .*{re.escape(f'of {path} has {features}')}"
    with user_error(message):
        find_source("tfrecord").files(str(path))


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (FILES, {"y": b"lilly"}, "unknown class 'lilly'; did you mean 'lily'"),
        (FILES, {"y": ()}, "y holds bytes[0], not one int64 or bytes"),
        (FILES, {"y": 4}, "y: unknown class '4'"),
        (FILES, {"y": 0}, "y: unknown class '0'"),
        (FILES, {"file": b"GIF89a"}, "is no PNG or JPEG"),
        (PIXELS, {"pixels": bytes(59)}, "59 bytes, not the 60"),
        (AGES, {"age": float("nan")}, "age is nan"),
        (TAGS, {"tags": [1, 2]}, "tags[1] is 2"),
        (TAGS, {"tags": 1}, "tags holds int64[1], none at [1]"),
    ],
)
def test_wrong_record_is_named(tmp_path, read, text, change, message):
    good = dots(1)
    path = write_records(tmp_path / "x.tfrecord", [good, {**good, **change}, good])
    second = 16 + struct.unpack_from("<Q", path.read_bytes())[0]
    pattern = re.escape(f"{path}: record at byte {second}: ") + ".*" + re.escape(message)
    with user_error(pattern):
        read(text, write_records(tmp_path / "before.tfrecord", [good]), path)


def test_schema_of_table_is_refused(tmp_path, read):
    table = """
        {name: t, origin: o, columns: {fare: {type: float}, tip: {type: float}},
        label: {regression: tip}, deep: [{column: fare, numeric: z_score}]}
    """
    path = write_records(tmp_path / "x.tfrecord", [dots(1)])
    with user_error(r"schema.yaml: .*unknown key"):
        read(table, path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no records"),
        (b"a,b\n1,2\n", "damaged, or no TFRecord"),
        ([b""], "record at byte 0: is no"),
        ([b"no Example"], "record at byte 0: is no"),
    ],
)
def test_file_without_examples_is_named(tmp_path, read, content, message):
    path = tmp_path / "x"
    path.write_bytes(content) if isinstance(content, bytes) else write_records(path, content)
    with user_error(f"^{path}: {message}"):
        read(PIXELS, path)


@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    levels=st.lists(st.integers(0, 9), max_size=3),
    place=st.integers(1, 10**6),
)
def test_packed_or_damaged_file(tmp_path_factory, sizes, levels, place):
    """A file gives all records, however it is packed, and is refused if it is cut or changed."""
    path = tmp_path_factory.mktemp("records") / "x"
    # Many bytes are zeros, which begin what could be lengths.
    records = [RANDOM.choice([0, 0, 0, 1, 77, 255], n).astype(np.uint8).tobytes() for n in sizes]
    data = write_records(path, [{"x": record} for record in records]).read_bytes()
    packed = data
    if levels:
        parts = np.array_split(np.frombuffer(data, np.uint8), len(levels))
        packed = b"".join(map(gzip.compress, parts, levels))
    path.write_bytes(packed)
    read = [record.value("x", "bytes") for record in tfrecords.read_records(stat_file(path))]
    assert read == records
    place %= len(data)
    changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    for damaged in (packed[: -1 - place % 15], changed):
        path.write_bytes(damaged)
        with user_error(f"^{path}: (damaged|cannot be read)"):
            list(tfrecords.read_records(stat_file(path)))
