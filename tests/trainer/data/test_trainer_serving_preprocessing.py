"""Preprocessing inside an exported model, compared with the converter."""

import contextlib
import pathlib
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import trips
from hypothesis import given, settings
from hypothesis import strategies as st
from opened import read_all

from common.manifest import Encoding, Feature, Manifest
from components.convert.sources.tables import TableSource
from tests.errors import user_error
from trainer.data.serving_preprocessing import serving_preprocessing

DTYPES = {"float": "float32", "int": "int64", "string": "string", "bool": "string", "time": "int64"}
COMMON = ["", " ", "NA"]  # cells of every kind
CLOCKS = st.times().map("T{:%H:%M}".format) | st.builds(
    "{}{:%H:%M:%S}{}".format, st.sampled_from("T "), st.times(), st.sampled_from(["", ".123456"])
)
ZONES = st.sampled_from(["", "Z", "+05:30", "-14:00", "+24:00"])


def cells(words, *others):
    return st.sampled_from(COMMON) | st.sampled_from([*words.split(), *others])


MISSING = st.lists(cells("-999 -999.0 -999.5 0 nan 1e3 none"), max_size=3, unique=True)
CELLS = {
    # TensorFlow takes what is subnormal for 0.
    "float": cells("-999 -999.0 0 -0.0 1000 inf 1e39", " -999")
    | cells("+.5 5. 1e400 1_000 0x10 infinity 1.0000000596046447755", "1 2", "\t7 ")
    | st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(repr),
    "int": cells("-999 0 1000 +7 7.0 1e3 9223372036854775808 -9223372036854775809 00012 1_0")
    | cells("", " 7\t")
    | st.integers(-(2**63), 2**63 + 2000).map(str)
    | st.integers(2**63 - 2000, 2**63 + 2000).map(str),
    "time": cells("0 2024-02-30 1900-02-29 2000-02-29 9999-12-31T23:59:59.9999999Z")
    | st.builds("{}{}{}".format, st.dates(), CLOCKS, ZONES)
    | st.dates().map(str),
    "string": cells("-999 -999.0 0 Bonn none None")
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
    "bool": cells("0 true True f No 1 maybe", " YES\t", "\u00a0true", "\u0130"),
}
DEFAULTS = {"float": [0.1, -999, 0], "int": [-999, 0], "string": ["", "Ulm"]}
DEFAULTS |= {"bool": ["true", "false"], "time": [-1, 0]}


@st.composite
def tables(draw, kind, cell):
    """A table of one input, and its cells in a file."""
    feature = Feature(
        name="x",
        type=kind,
        dtype=DTYPES[kind],
        missing=tuple(draw(MISSING)),
        default=draw(st.none() | st.sampled_from(DEFAULTS[kind])),
    )
    manifest = Manifest(
        name="t",
        origin="t",
        label="said",
        class_names=(),
        record_bytes=None,
        features=(feature,),
        wide=(Encoding(kind="hash", columns=("x",), hash_buckets=3),),
        splits={},
        arguments={},
    )
    return manifest, draw(st.lists(cell, min_size=1))


def assert_same(actual, expected):
    """Compares to the bit."""
    actual, expected = (np.asarray(values) for values in (actual, expected))
    assert actual.tolist() == expected.tolist()
    assert actual.dtype == object or actual.tobytes() == expected.tobytes()


def convert(feature, cells):
    column = {"type": feature.type}
    if feature.default is not None:
        is_true = feature.default == "true"
        column["default"] = is_true if feature.type == "bool" else feature.default
    schema = trips.SCHEMA | {
        "columns": {"x": column, "n": {"type": "int"}, "tip": {"type": "string"}},
        "missing": [*feature.missing],
        "deep": [],
        "wide": [{"column": "n", "numeric": "z_score"}],
    }
    rows = [{"x": cell, "n": 7 + i, "tip": "yes"} for i, cell in enumerate(cells)]
    with tempfile.TemporaryDirectory() as directory:
        files = trips.write(pathlib.Path(directory), rows, schema)
        source = TableSource(name="csv", schema=files["schema"])
        return read_all(source, files["source"]).splits["train"]["x"]


def parsed(manifest, cells):
    """Returns the values of the right cells, and these cells."""
    right = []
    for cell in cells:
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            serving_preprocessing(manifest, {"x": tf.constant([cell])})
            right.append(cell)
    values = serving_preprocessing(manifest, {"x": tf.constant(right)})["x"] if right else None
    return values, right


@pytest.mark.parametrize("kind", CELLS)
@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
@pytest.mark.long
def test_texts_become_what_converter_stores(kind, data):
    """Texts become, to the bit, what the converter stores; both refuse the same ones."""
    manifest, cells = data.draw(tables(kind, CELLS[kind]))
    values, right = parsed(manifest, cells)
    if right:
        assert_same(values, convert(manifest.features[0], right))
    for cell in [*{*cells} - {*right}][:2]:
        with user_error("x: "):
            convert(manifest.features[0], [cell])
