"""Whoever reads TFRecord reads ours: TensorFlow's own dataset and parser."""

import csv
import pathlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.writing.byte_strings import Strings
from components.convert.writing.splits import carve
from components.convert.writing.tfrecord import Field, Layout, write
from components.convert.writing.wire_format import varint_bytes

tf = pytest.importorskip("tensorflow")

DATA = pathlib.Path(__file__).parents[4] / "shared" / "data"
PARSED = {"bytes": tf.string, "string": tf.string, "float": tf.float32, "int64": tf.int64}


def parse(paths: list[pathlib.Path], kinds: dict[str, str]) -> dict[str, np.ndarray]:
    """All records of the files, as TensorFlow's dataset and `parse_example` have them."""
    records = tf.data.TFRecordDataset([str(path) for path in paths]).batch(1 << 20)
    spec = {name: tf.io.FixedLenFeature([], PARSED[kind]) for name, kind in kinds.items()}
    parts = [tf.io.parse_example(batch, spec) for batch in records]
    return {name: np.concatenate([part[name].numpy() for part in parts]) for name in kinds}


floats = st.floats(width=32) | st.sampled_from([-0.0, 1e-45, float("inf"), float("nan")])
integers = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)
texts = st.binary(max_size=40) | st.sampled_from([b"", b"x" * 127, b"x" * 128, bytes(range(256)) * 70])
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=140)


@settings(max_examples=settings.default.max_examples // 2)
@given(
    rows=st.lists(st.tuples(floats, integers, texts), min_size=1, max_size=12),
    names=st.lists(names, min_size=4, max_size=4, unique=True),
    size=st.integers(1, 20_000),
)
def test_tensorflow_reads_every_value_under_every_name(tmp_path_factory, rows, names, size):
    numbers, whole, strings = zip(*rows, strict=True)
    columns = {
        "float": np.array(numbers, np.float32),
        "int64": np.array(whole, np.int64),
        "string": Strings.of(strings),
        "bytes": np.random.default_rng(size).integers(0, 256, (len(rows), size), np.uint8),
    }
    widths = {"float": 4, "int64": 10 if min(whole) < 0 else varint_bytes(max(whole)), "bytes": size}
    widths["string"] = max(map(len, strings))
    kinds = dict(zip(names, columns, strict=True))
    layout = Layout([Field(name=name, kind=kind, num_bytes=widths[kind]) for name, kind in kinds.items()])
    order = np.random.default_rng(size).permutation(len(rows))
    path = tmp_path_factory.mktemp("interop") / "file"
    write(path, layout, {name: columns[kind] for name, kind in kinds.items()}, rows=np.array_split(order, 2))
    parsed = {kinds[name]: values for name, values in parse([path], kinds).items()}
    assert parsed["float"].view(np.uint32).tolist() == columns["float"][order].view(np.uint32).tolist()
    assert parsed["int64"].tolist() == columns["int64"][order].tolist()
    assert parsed["string"].tolist() == [strings[i] for i in order]
    assert parsed["bytes"].tolist() == [columns["bytes"][i].tobytes() for i in order]


def test_the_real_taxi_trips_row_by_row(tmp_path):
    taxi = DATA / "taxi" / "data.csv"
    if not taxi.is_file():
        pytest.skip("the taxi trips are not in ../shared/data/taxi")
    manifest = convert(Options(dataset="taxi", source=str(taxi), output=str(tmp_path / "out")))
    with open(taxi, newline="") as file:
        rows = list(csv.DictReader(file))
    parts = carve({"train": len(rows)}, validation_fraction=0.1, test_fraction=0.2, seed=0)
    kinds = {"int64": "int64", "float32": "float", "string": "string"}
    kinds = {feature.name: kinds[feature.dtype] for feature in manifest.features}
    positive = 0
    for split, part in manifest.splits.items():
        parsed = parse([tmp_path / "out" / shard.file for shard in part.shards], kinds)
        chosen = [rows[i] for i in parts[split][1][:]]
        assert part.examples == len(chosen)
        for feature in manifest.features:
            name = feature.name
            if name == "label":
                expected = [float(row["tips"]) > 0.2 * float(row["fare"]) for row in chosen]
            elif feature.dtype == "string":
                expected = np.array([row[name].encode() for row in chosen], object)
            else:
                expected = np.array([float(row[name] or 0) for row in chosen]).astype(feature.dtype)
            np.testing.assert_array_equal(parsed[name], expected)
        positive += part.class_histogram[1]
    assert len(rows) == 15_002 and round(100 * positive / len(rows), 2) == 22.49
    assert manifest.deep[3].vocabulary[:3] == ("Cash", "Credit Card", "No Charge")
    assert [f.name for f in manifest.inputs] == ["company", "fare", "payment_type", "trip_miles", "trip_seconds"]
    assert manifest.arguments["schema"]["name"] == "taxi"
