import pathlib
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from dataset_files import parse_examples
from hypothesis import given
from hypothesis import strategies as st

from common.manifest import HEAD_BYTES, Shard
from common.storage.files import crc32c, crc32c_of
from components.convert.hashes import content_hashes
from components.convert.records import Field, Layout, take
from components.convert.shards import ShardWriter


def write(path: pathlib.Path, layout: Layout, columns: dict) -> Shard:
    """Writes the records of a shard in two parts."""
    writer = ShardWriter(str(path), layout)
    count = len(next(iter(columns.values())))
    for rows in np.split(np.arange(count), [count // 2]):
        if len(rows):
            values = {name: take(column, rows) for name, column in columns.items()}
            writer.append(values, content_hashes(len(rows), values))
    return writer.close()


def example_values(kind: str, values: object, row: int) -> list:
    """Returns the values of a row as a feature of an Example has them."""
    if kind == "string":
        return [values[row].as_py()]
    return [values[row].tobytes()] if kind == "bytes" else values[row].reshape(-1).tolist()


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
def test_protobuf_reads_records(tmp_path_factory, rows, size, label_bytes, width, strings):
    """The official library reads every value, and fixed ones lie at the layout's offsets in every record."""
    count, random, most = len(rows), np.random.default_rng(size), 2 ** (7 * label_bytes) - 1
    floats, integers, a, b = zip(*rows, strict=True)
    table = {  # Kind, bytes and values, not in the order of a record.
        "z": ("int64", 10, np.array(integers, np.int64)),
        "label": ("int64", label_bytes, random.integers(0, most, count, np.int64, endpoint=True)),
        "float": ("float", 4, np.array(floats, "<f4")),
        "image": ("bytes", size, random.integers(0, 256, (count, size), np.uint8)),
        "numbers": ("float", 4 * width, random.standard_normal((count, width)).astype("<f4")),
        "switches": (
            "int64",
            label_bytes * width,
            random.integers(0, most, (count, width), np.int64, endpoint=True),
        ),
    }
    if strings:
        for name, texts in (("string a", a), ("b", b)):
            table[name] = ("string", max(map(len, texts)), pa.array(texts, pa.large_binary()))
    layout = Layout(
        [
            Field(name=name, kind=kind, num_bytes=num_bytes)
            for name, (kind, num_bytes, _) in table.items()
        ]
    )
    path = tmp_path_factory.mktemp("records") / "file"
    shard = write(path, layout, {name: values for name, (_, _, values) in table.items()})
    data = path.with_suffix(".tfrecord").read_bytes()
    assert (shard.examples, shard.bytes) == (count, len(data))
    assert (shard.crc32c, shard.head_crc32c) == (crc32c(data), crc32c(data[:HEAD_BYTES]))
    index = path.with_suffix(".index")
    starts = np.fromfile(index, "<i8") if strings else np.arange(count + 1) * layout.record_bytes
    assert shard.index_crc32c == (crc32c_of(index) if strings else None)
    assert (starts[0], starts[-1]) == (0, len(data))
    for i, record in enumerate(parse_examples(data)):
        assert record == {
            name: example_values(kind, values, i) for name, (kind, _, values) in table.items()
        }
        for name, offset in layout.offsets.items():
            kind, num_bytes, values = table[name]
            raw = data[starts[i] + offset :][:num_bytes]
            if name == "label":
                assert sum((byte & 127) << 7 * k for k, byte in enumerate(raw)) == values[i]
            assert kind == "int64" or raw == values[i].tobytes()


@given(
    name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=140)
)
def test_field_has_any_name(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("names") / "file"
    columns = {name: pa.array([b"abc"], pa.large_binary()), f"{name}2": np.array([5])}
    fields = [
        Field(name=name, kind="string", num_bytes=3),
        Field(name=f"{name}2", kind="int64", num_bytes=1),
    ]
    write(path, Layout(fields), columns)
    assert parse_examples(path.with_suffix(".tfrecord").read_bytes()) == [
        {name: [b"abc"], f"{name}2": [5]}
    ]


def test_long_string_takes_no_more_memory(tmp_path):
    texts = pa.array([b"short"] * 5000 + [b"x" * 3_000_000] + [b"short"] * 5000, pa.large_binary())
    layout = Layout([Field(name="text", kind="string", num_bytes=3_000_000)])
    tracemalloc.start()
    try:
        write(tmp_path / "file", layout, {"text": texts})
        assert (
            tracemalloc.get_traced_memory()[1] < 100_000_000
        )  # 10,000 times as long would be 30 GB
    finally:
        tracemalloc.stop()
    lengths = [
        len(example["text"][0])
        for example in parse_examples((tmp_path / "file.tfrecord").read_bytes())
    ]
    assert lengths == [5] * 5000 + [3_000_000] + [5] * 5000


def test_too_large_integer_is_refused():
    layout = Layout([Field(name="label", kind="int64", num_bytes=1)])
    for value in (128, -1):
        with pytest.raises(ValueError, match=str(value)):
            layout.encode({"label": np.array([0, value])})
