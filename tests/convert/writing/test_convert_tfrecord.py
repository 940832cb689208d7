from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing import tfrecord
from components.convert.writing.byte_strings import Strings
from components.convert.writing.tfrecord import Field, Layout, write
from components.convert.writing.wire_format import varint_bytes
from trainer.base.files import crc32c, crc32c_of
from trainer.base.manifest import HEAD_BYTES


@given(
    count=st.integers(1, 5),
    size=st.integers(1, 20_000) | st.sampled_from([1, 110, 127, 128, 16_383, 16_384]),
    label_bytes=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_protobuf_reads_back_every_record(tmp_path_factory, examples, count, size, label_bytes, seed):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, size), np.uint8)
    labels = random.integers(0, 2 ** (7 * label_bytes) - 1, count, np.int64, endpoint=True)
    # Given out of order: the record is in the order of the names.
    fields = (("label", "int64", label_bytes), ("image", "bytes", size))
    layout = Layout([Field(name=name, kind=kind, num_bytes=num_bytes) for name, kind, num_bytes in fields])
    assert layout.offsets["image"] < layout.offsets["label"]
    rows = random.permutation(count)
    path = tmp_path_factory.mktemp("records") / "file"
    file = write(path, layout, {"image": images, "label": labels}, rows=[rows])
    data = path.read_bytes()
    assert (file.crc32c, file.head_crc32c, file.index_crc32c) == (crc32c(data), crc32c(data[:HEAD_BYTES]), None)
    assert (file.examples, file.bytes) == (count, count * layout.record_bytes) == (count, len(data))
    for i, (row, example) in enumerate(zip(rows, examples(data), strict=True)):
        assert example == {"image": [images[row].tobytes()], "label": [labels[row]]}
        start = i * layout.record_bytes + layout.offsets["image"]
        assert data[start : start + size] == images[row].tobytes()
        start = i * layout.record_bytes + layout.offsets["label"]
        value = data[start : start + label_bytes]
        assert sum((byte & 127) << 7 * k for k, byte in enumerate(value)) == labels[row]


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
    )
)
def test_protobuf_reads_back_floats_negative_integers_and_strings_of_any_length(tmp_path_factory, examples, rows):
    floats, integers, a, b = zip(*rows, strict=True)
    columns = {
        "string a": Strings.of(a),
        "b": Strings.of(b),
        "float": np.array(floats, np.float32),
        "z": np.array(integers, np.int64),
    }
    layout = Layout(
        [
            Field(name="string a", kind="string", num_bytes=max(map(len, a))),
            Field(name="b", kind="string", num_bytes=max(map(len, b))),
            Field(name="float", kind="float", num_bytes=4),
            Field(name="z", kind="int64", num_bytes=10),
        ]
    )
    path = tmp_path_factory.mktemp("records") / "file"
    index = path.with_suffix(".index")
    file = write(path, layout, columns, rows=np.array_split(np.arange(len(rows)), 2), index=index)
    data, starts = path.read_bytes(), np.fromfile(index, "<i8")
    assert (file.index_crc32c, file.examples) == (crc32c_of(index), len(rows))
    assert layout.record_bytes is None and set(layout.offsets) == {"float", "z"}
    expected = [{"float": [f], "z": [i], "string a": [a], "b": [b]} for f, i, a, b in rows]
    assert examples(data) == expected
    assert starts[0] == 0 and starts[-1] == file.bytes == len(data)
    for start, end, row in zip(starts[:-1], starts[1:], expected, strict=True):
        assert end - start == layout.least_bytes + len(row["string a"][0]) + len(row["b"][0])
        assert examples(data[start:end]) == [row]
        at = start + layout.offsets["float"]
        assert np.frombuffer(data[at : at + 4], "<f4")[0] == row["float"][0]


def test_a_file_of_several_chunks_holds_every_record_in_order(tmp_path, monkeypatch, examples):
    monkeypatch.setattr(tfrecord, "_CHUNK_BYTES", 1000)
    labels = np.arange(5000)
    layout = Layout([Field(name="label", kind="int64", num_bytes=3)])
    file = write(tmp_path / "file", layout, {"label": labels}, rows=np.split(labels[::-1], [7, 3000]))
    data = (tmp_path / "file").read_bytes()
    assert file.head_crc32c == crc32c(data[:HEAD_BYTES])
    values = [example["label"][0] for example in examples(data)]
    assert values == list(range(4999, -1, -1))


def test_one_long_string_does_not_make_room_for_many(tmp_path, examples):
    texts = Strings.of([b"short"] * 5000 + [b"x" * 3_000_000] + [b"short"] * 5000)
    layout = Layout([Field(name="text", kind="string", num_bytes=3_000_000)])
    tracemalloc.start()
    try:
        write(tmp_path / "file", layout, {"text": texts}, rows=[np.arange(len(texts))])
        assert tracemalloc.get_traced_memory()[1] < 100_000_000  # 10,000 times as long would be 30 GB
    finally:
        tracemalloc.stop()
    lengths = [len(example["text"][0]) for example in examples((tmp_path / "file").read_bytes())]
    assert lengths == [5] * 5000 + [3_000_000] + [5] * 5000


def test_an_integer_too_large_for_its_field_is_refused():
    layout = Layout([Field(name="label", kind="int64", num_bytes=1)])
    for value in (128, -1):
        with pytest.raises(ValueError, match=str(value)):
            layout.encode({"label": np.array([0, value])})


def test_varint_bytes_are_just_enough():
    assert [varint_bytes(n) for n in (0, 1, 127, 128, 2**14 - 1, 2**14)] == [1, 1, 1, 2, 2, 3]
