import pathlib
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.manifest import HEAD_BYTES, Shard
from common.storage.files import crc32c, crc32c_of
from components.convert.hashes import content_hashes
from components.convert.records import Field, Layout, take
from components.convert.shards import ShardWriter


def write(path: pathlib.Path, layout: Layout, columns: dict, *, parts: list[np.ndarray]) -> Shard:
    writer = ShardWriter(str(path), layout)
    for rows in parts:
        rows = np.sort(rows)
        values = {name: take(column, rows) for name, column in columns.items()}
        writer.append(values, content_hashes(len(rows), values))
    return writer.close()


@given(
    rows=st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.integers(-(2**63), 2**63 - 1),
            st.binary(max_size=300) | st.sampled_from([b"", b"x" * 127, b"x" * 128, b"x" * 20_000]),
            st.binary(max_size=4),
        ),
        min_size=1,
        max_size=6,
    ),
    size=st.integers(1, 20_000) | st.sampled_from([1, 110, 127, 128, 16_383, 16_384]),
    label_bytes=st.integers(1, 9),
    width=st.integers(1, 40),
    strings=st.booleans(),
)
def test_protobuf_reads_back_records(tmp_path_factory, examples, rows, size, label_bytes, width, strings):
    floats, integers, a, b = zip(*rows, strict=True)
    random = np.random.default_rng(size)
    columns = {  # given out of order: the record is in the order of the names, and strings come last
        "z": np.array(integers, np.int64),
        "label": random.integers(0, 2 ** (7 * label_bytes) - 1, len(rows), np.int64, endpoint=True),
        "float": np.array(floats, np.float32),
        "image": random.integers(0, 256, (len(rows), size), np.uint8),
        "numbers": random.standard_normal((len(rows), width)).astype(np.float32),
        "switches": random.integers(0, 2 ** (7 * label_bytes) - 1, (len(rows), width), np.int64, endpoint=True),
        **({"string a": pa.array(a, pa.large_binary()), "b": pa.array(b, pa.large_binary())} if strings else {}),
    }
    kinds = {"z": ("int64", 10), "label": ("int64", label_bytes), "float": ("float", 4), "image": ("bytes", size)}
    kinds |= {"numbers": ("float", 4 * width), "switches": ("int64", label_bytes * width)}
    kinds |= {"string a": ("string", max(map(len, a))), "b": ("string", max(map(len, b)))} if strings else {}
    layout = Layout([Field(name=name, kind=kind, num_bytes=num_bytes) for name, (kind, num_bytes) in kinds.items()])
    fixed = sorted(kinds.keys() - {"string a", "b"})
    assert list(layout.offsets) == sorted(layout.offsets, key=layout.offsets.get) == fixed
    path = tmp_path_factory.mktemp("records") / "file"
    order = np.arange(len(rows))
    file = write(path, layout, columns, parts=[part for part in np.array_split(order, 2) if len(part)])
    path = path.with_suffix(".tfrecord")
    data = path.read_bytes()
    assert (file.examples, file.bytes) == (len(rows), len(data))
    assert (file.crc32c, file.head_crc32c) == (crc32c(data), crc32c(data[:HEAD_BYTES]))
    if strings:
        starts = np.fromfile(index := path.with_suffix(".index"), "<i8")
        assert layout.record_bytes is None and file.index_crc32c == crc32c_of(index)
        lengths = [layout.least_bytes + len(a[i]) + len(b[i]) for i in order]
        assert np.diff(starts).tolist() == lengths
    else:
        starts = np.arange(len(rows) + 1) * layout.record_bytes
        assert file.index_crc32c is None
    assert (starts[0], starts[-1]) == (0, len(data))
    texts = [{"string a": [a[i]], "b": [b[i]]} if strings else {} for i in order]
    assert [{name: record[name] for name in text} for record, text in zip(examples(data), texts, strict=True)] == texts
    for record, i in zip(examples(data), order, strict=True):
        assert record["switches"] == columns["switches"][i].tolist() and record["z"] == [integers[i]]
        assert np.array_equal(record["numbers"], columns["numbers"][i])
    for start, i in zip(starts, order, strict=False):
        places = {name: slice(start + at, start + at + kinds[name][1]) for name, at in layout.offsets.items()}
        assert data[places["image"]] == columns["image"][i].tobytes()
        assert np.frombuffer(data[places["float"]], "<f4")[0] == floats[i]
        assert sum((byte & 127) << 7 * k for k, byte in enumerate(data[places["label"]])) == columns["label"][i]


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=140))
def test_a_field_may_have_any_name(tmp_path_factory, examples, name):
    path = tmp_path_factory.mktemp("names") / "file"
    columns = {name: pa.array([b"abc"], pa.large_binary()), f"{name}2": np.array([5])}
    fields = [Field(name=name, kind="string", num_bytes=3), Field(name=f"{name}2", kind="int64", num_bytes=1)]
    write(path, Layout(fields), columns, parts=[np.arange(1)])
    assert examples(path.with_suffix(".tfrecord").read_bytes()) == [{name: [b"abc"], f"{name}2": [5]}]


def test_one_long_string_does_not_make_room_for_many(tmp_path, examples):
    texts = pa.array([b"short"] * 5000 + [b"x" * 3_000_000] + [b"short"] * 5000, pa.large_binary())
    layout = Layout([Field(name="text", kind="string", num_bytes=3_000_000)])
    tracemalloc.start()
    try:
        write(tmp_path / "file", layout, {"text": texts}, parts=[np.arange(len(texts))])
        assert tracemalloc.get_traced_memory()[1] < 100_000_000  # 10,000 times as long would be 30 GB
    finally:
        tracemalloc.stop()
    lengths = [len(example["text"][0]) for example in examples((tmp_path / "file.tfrecord").read_bytes())]
    assert lengths == [5] * 5000 + [3_000_000] + [5] * 5000


def test_an_integer_too_large_for_its_field_is_refused():
    layout = Layout([Field(name="label", kind="int64", num_bytes=1)])
    for value in (128, -1):
        with pytest.raises(ValueError, match=str(value)):
            layout.encode({"label": np.array([0, value])})
