"""Whoever reads TFRecord reads ours: TensorFlow's own dataset and parser."""

from __future__ import annotations

import csv
import pathlib
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.cifar import CIFAR10
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


@st.composite
def tables(draw):
    """By field, its kind and its values."""
    count = draw(st.integers(1, 12))
    kinds = draw(st.dictionaries(names, st.sampled_from(list(PARSED)), min_size=1, max_size=6))
    made = {}
    for name, kind in kinds.items():
        size = draw(st.integers(1, 20_000)) if kind == "bytes" else 0
        values = {
            "bytes": st.integers(0, 255).map(lambda byte, size=size: bytes([byte]) * size),
            "string": texts,
            "float": floats,
            "int64": draw(st.sampled_from([integers, st.integers(0, 2**40)])),
        }[kind]
        made[name] = kind, draw(st.lists(values, min_size=count, max_size=count))
    return made


def field_and_column(name: str, kind: str, values: list):
    if kind == "string":
        return Field(name=name, kind=kind, num_bytes=max(map(len, values))), Strings.of(values)
    if kind == "bytes":
        return Field(name=name, kind=kind, num_bytes=len(values[0])), np.array(
            [list(value) for value in values], np.uint8
        )
    if kind == "float":
        return Field(name=name, kind=kind, num_bytes=4), np.array(values, np.float32)
    num_bytes = 10 if min(values) < 0 else varint_bytes(max(values))
    return Field(name=name, kind=kind, num_bytes=num_bytes), np.array(values, np.int64)


@settings(max_examples=settings.default.max_examples // 4)
@given(table=tables(), seed=st.integers(0, 9))
def test_tensorflow_reads_every_value_of_every_schema(tmp_path_factory, table, seed):
    root = tmp_path_factory.mktemp("interop")
    made = {name: field_and_column(name, kind, values) for name, (kind, values) in table.items()}
    count = len(next(iter(table.values()))[1])
    rows = np.array_split(np.random.default_rng(seed).permutation(count), 2)
    layout, columns = (
        Layout([field for field, _ in made.values()]),
        {name: column for name, (_, column) in made.items()},
    )
    paths = [root / "0", root / "1"]
    for path, part in zip(paths, rows, strict=True):
        write(path, layout, columns, rows=[part])
    order = np.concatenate(rows)
    parsed = parse(paths, {name: kind for name, (kind, _) in table.items()})
    for name, (kind, values) in table.items():
        expected = [values[i] for i in order]
        if kind == "float":
            expected = np.array(expected, np.float32)
            assert parsed[name].view(np.uint32).tolist() == expected.view(np.uint32).tolist()
        else:
            assert parsed[name].tolist() == expected


def images(directory: pathlib.Path, manifest, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a split, as TensorFlow reads them."""
    paths = [directory / shard.file for shard in manifest.splits[split].shards]
    parsed = parse(paths, {"image": "bytes", "label": "int64"})
    pixels = tf.io.decode_raw(parsed["image"], tf.uint8).numpy()
    return pixels.reshape(-1, *manifest.feature("image").shape), parsed["label"]


@pytest.mark.slow
def test_tensorflow_reads_all_of_cifar_10(tmp_path):
    path = DATA / "cifar10" / "cifar-10-batches-bin.tar.xz"
    if not path.is_file():
        pytest.skip("the CIFAR-10 archive is not in ../shared/data/cifar10")
    manifest = convert(Options(dataset="cifar10", source=str(path), output=str(tmp_path), validation_fraction=0))
    with tarfile.open(path) as tar:
        files = {pathlib.Path(member.name).name: tar.extractfile(member).read() for member in tar if member.isfile()}
    for split, members in CIFAR10.files_of.items():
        raw = np.frombuffer(b"".join(files[name] for name in members), np.uint8).reshape(-1, 3073)
        pixels, labels = images(tmp_path, manifest, split)
        np.testing.assert_array_equal(labels, raw[:, 0])
        np.testing.assert_array_equal(pixels.transpose(0, 3, 1, 2).reshape(-1, 3072), raw[:, 1:])


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
