import numpy as np
import pyarrow as pa
import pytest
from dataset_files import parse_examples
from hypothesis import given
from hypothesis import strategies as st

from components.convert.hashes import content_hashes
from components.convert.records import Field, Layout, take
from components.convert.shards import ShardWriter

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.binary(max_size=40) | st.sampled_from([120, 127, 128, 20_000]).map(bytes)


def values_of(column):
    """Returns of each row the values of its feature."""
    if not isinstance(column, np.ndarray):
        return [[value] for value in column.to_pylist()]
    rows = column.reshape(len(column), -1)
    return [[row.tobytes()] for row in rows] if column.dtype == np.uint8 else rows.tolist()


@given(
    numbers=st.lists(st.tuples(FLOATS, INTEGERS, TEXTS), min_size=1, max_size=6),
    name=NAMES | st.just("n" * 140),
    size=st.integers(1, 20_000) | st.sampled_from([1, 110, 127, 128, 16_383, 16_384]),
    label_bytes=st.integers(1, 9),
    width=st.integers(1, 40),
    strings=st.booleans(),
)
def test_protobuf_reads_records(tmp_path_factory, numbers, name, size, label_bytes, width, strings):
    """The official library reads every value."""
    floats, integers, texts = zip(*numbers, strict=True)
    count, random = len(texts), np.random.default_rng(size)
    labels = random.integers(0, 2 ** (7 * label_bytes), (count, width), np.int64)
    columns = {  # Not in the order of a record.
        f"{name}z": np.array(integers, np.int64),
        f"{name}labels": labels,
        "label": labels[:, 0],
        "numbers": np.repeat(np.array([floats], "<f4").T, width, axis=1),
        "image": random.integers(0, 256, (count, size), np.uint8),
    }
    kinds = ["int64", "int64", "int64", "float", "bytes"]
    sizes = [10, label_bytes * width, label_bytes, 4 * width, size]
    if strings:
        columns[name] = pa.array(texts, pa.large_binary())
        kinds.append("string")
        sizes.append(max(map(len, texts)))
    fields = zip(columns, kinds, sizes, strict=False)
    layout = Layout([Field(name=name, kind=kind, num_bytes=size) for name, kind, size in fields])
    path = tmp_path_factory.mktemp("records") / "file"
    writer = ShardWriter(str(path), layout)
    for part in np.array_split(np.arange(count), min(2, count)):
        rows = {name: take(column, part) for name, column in columns.items()}
        writer.append(rows, content_hashes(len(part), rows))
    writer.close()
    data = path.with_suffix(".tfrecord").read_bytes()
    expected = zip(*map(values_of, columns.values()), strict=True)
    assert parse_examples(data) == [dict(zip(columns, row, strict=True)) for row in expected]
    if strings:
        assert np.fromfile(path.with_suffix(".index"), "<i8")[-1] == len(data)
    else:
        assert len(data) == count * layout.record_bytes


def test_too_large_integer_is_refused():
    layout = Layout([Field(name="label", kind="int64", num_bytes=1)])
    for value in (128, -1):
        with pytest.raises(ValueError, match=str(value)):
            layout.encode({"label": np.array([0, value])})
