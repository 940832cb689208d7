from __future__ import annotations

import hashlib
import struct

import google_crc32c
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from components.convert.tfrecord import Field, Layout, varint_bytes, write


def _example_class():
    """`tf.train.Example` as its .proto files declare it, without TensorFlow."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(parent, name, *fields):
        made = parent.add(name=name)
        for number, (field, kind, label, type_name) in enumerate(fields, 1):
            made.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
        return made

    one, many, nested = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED, kinds.TYPE_MESSAGE
    types = file.message_type
    message(types, "BytesList", ("value", kinds.TYPE_BYTES, many, None))
    message(types, "FloatList", ("value", kinds.TYPE_FLOAT, many, None))
    message(types, "Int64List", ("value", kinds.TYPE_INT64, many, None))
    lists = (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List"))
    feature = message(types, "Feature", *((field, nested, one, f".tensorflow.{kind}") for field, kind in lists))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message(types, "Features", ("feature", nested, many, ".tensorflow.Features.FeatureEntry"))
    entry = message(
        features.nested_type,
        "FeatureEntry",
        ("key", kinds.TYPE_STRING, one, None),
        ("value", nested, one, ".tensorflow.Feature"),
    )
    entry.options.map_entry = True
    message(types, "Example", ("features", nested, one, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example = _example_class()


def _masked(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _payloads(data: bytes):
    start = 0
    while start < len(data):
        length, header_crc = struct.unpack_from("<QI", data, start)
        payload = data[start + 12 : start + 12 + length]
        assert header_crc == _masked(data[start : start + 8])
        assert struct.unpack_from("<I", data, start + 12 + length) == (_masked(payload),)
        yield payload
        start += 16 + length


@given(
    count=st.integers(1, 5),
    size=st.integers(1, 20_000) | st.sampled_from([1, 110, 127, 128, 16_383, 16_384]),
    label_bytes=st.integers(1, 9),
    seed=st.integers(0, 999),
)
def test_protobuf_reads_back_every_record(tmp_path_factory, count, size, label_bytes, seed):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, size), np.uint8)
    labels = random.integers(0, 2 ** (7 * label_bytes) - 1, count, np.int64, endpoint=True)
    # Given out of order: the record is in the order of the names.
    layout = Layout(
        [
            Field(name="label", kind="int64", num_bytes=label_bytes),
            Field(name="image", kind="bytes", num_bytes=size),
        ]
    )
    assert layout.offsets["image"] < layout.offsets["label"]
    rows = random.permutation(count)
    path = tmp_path_factory.mktemp("records") / "file"
    written, sha256 = write(path, layout, {"image": images, "label": labels}, rows=rows)
    data = path.read_bytes()
    assert (written, sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert written == count * layout.record_bytes
    for i, (row, payload) in enumerate(zip(rows, _payloads(data), strict=True)):
        features = Example.FromString(payload).features.feature
        assert sorted(features) == ["image", "label"]
        assert list(features["image"].bytes_list.value) == [images[row].tobytes()]
        assert list(features["label"].int64_list.value) == [labels[row]]
        start = i * layout.record_bytes + layout.offsets["image"]
        assert data[start : start + size] == images[row].tobytes()
        start = i * layout.record_bytes + layout.offsets["label"]
        value = data[start : start + label_bytes]
        assert sum((byte & 127) << 7 * k for k, byte in enumerate(value)) == labels[row]


def test_a_file_of_several_chunks_holds_every_record_in_order(tmp_path):
    labels = np.arange(50_000)
    layout = Layout([Field(name="label", kind="int64", num_bytes=3)])
    write(tmp_path / "file", layout, {"label": labels}, rows=labels[::-1])
    values = [
        Example.FromString(payload).features.feature["label"].int64_list.value[0]
        for payload in _payloads((tmp_path / "file").read_bytes())
    ]
    assert values == list(range(49_999, -1, -1))


def test_an_integer_too_large_for_its_field_is_refused():
    layout = Layout([Field(name="label", kind="int64", num_bytes=1)])
    for value in (128, -1):
        with pytest.raises(ValueError, match=str(value)):
            layout.encode({"label": np.array([0, value])})


def test_varint_bytes_are_just_enough():
    assert [varint_bytes(n) for n in (0, 1, 127, 128, 2**14 - 1, 2**14)] == [1, 1, 1, 2, 2, 3]
