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
TEXTS = st.binary(max_size=40) | st.sampled_from([120, 127, 128, 20_000]).map(bytes)


def features(values):
    """Returns of each row the values of a feature of an Example."""
    if not isinstance(values, np.ndarray):
        return [[value] for value in values.to_pylist()]
    if values.dtype == np.uint8:
        return [[value.tobytes()] for value in values]
    return values.reshape(len(values), -1).tolist()


@given(
    rows=st.lists(
        st.tuples(
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.integers(-(2**63), 2**63 - 1),
            TEXTS,
            TEXTS,
        ),
        min_size=1,
        max_size=6,
    ),
    name=NAMES | st.just("n" * 140),
    size=st.integers(1, 20_000) | st.sampled_from([1, 110, 127, 128, 16_383, 16_384]),
    label_bytes=st.integers(1, 9),
    width=st.integers(1, 40),
    strings=st.booleans(),
)
def test_protobuf_reads_records(tmp_path_factory, rows, name, size, label_bytes, width, strings):
    """The official library reads every value."""
    count = len(rows)
    random = np.random.default_rng(size)
    labels = random.integers(0, 2 ** (7 * label_bytes), (count, width), np.int64)
    floats, integers, *texts = zip(*rows, strict=True)
    table = {  # Kind, bytes and values, not in the order of a record.
        f"{name}z": ("int64", 10, np.array(integers, np.int64)),
        f"{name}labels": ("int64", label_bytes * width, labels),
        "label": ("int64", label_bytes, labels[:, 0]),
        "numbers": ("float", 4 * width, np.repeat(np.array([floats], "<f4").T, width, axis=1)),
        "image": ("bytes", size, random.integers(0, 256, (count, size), np.uint8)),
    }
    for i, text in enumerate(texts if strings else ()):
        table[f"{name}{i}"] = ("string", max(map(len, text)), pa.array(text, pa.large_binary()))
    values = {name: column for name, (_, _, column) in table.items()}
    layout = Layout(
        [Field(name=name, kind=kind, num_bytes=size) for name, (kind, size, _) in table.items()]
    )
    path = tmp_path_factory.mktemp("records") / "file"
    writer = ShardWriter(str(path), layout)
    for part in np.array_split(np.arange(count), min(2, count)):
        columns = {name: take(column, part) for name, column in values.items()}
        writer.append(columns, content_hashes(len(part), columns))
    writer.close()
    data = path.with_suffix(".tfrecord").read_bytes()
    expected = {name: features(column) for name, column in values.items()}
    records = parse_examples(data)
    assert records == [{name: rows[i] for name, rows in expected.items()} for i in range(count)]
    if strings:
        assert np.fromfile(path.with_suffix(".index"), "<i8")[-1] == len(data)
    else:
        assert len(data) == count * layout.record_bytes


def test_too_large_integer_is_refused():
    layout = Layout([Field(name="label", kind="int64", num_bytes=1)])
    for value in (128, -1):
        with pytest.raises(ValueError, match=str(value)):
            layout.encode({"label": np.array([0, value])})
