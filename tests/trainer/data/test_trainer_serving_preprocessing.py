"""Preprocessing inside an exported model, compared with the converter."""

import contextlib
import pathlib
import re
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import trips
from hypothesis import given, settings
from hypothesis import strategies as st
from opened import read_all

from common.errors import UserError
from common.manifest import Encoding, Feature, Manifest
from common.spellings import marks
from components.convert.source import Block
from components.convert.sources.tables import TextSource
from trainer.data.serving_preprocessing import parse_texts, serving_preprocessing

DTYPES = {"float": "float32", "int": "int64", "string": "string", "bool": "string", "time": "int64"}
NUMPY = {"float": np.float32, "int": np.int64, "string": object, "bool": object}
COMMON = ["", " ", "NA"]  # cells of every kind
CLOCKS = st.times().map("T{:%H:%M}".format) | st.builds(
    "{}{:%H:%M:%S}{}".format, st.sampled_from("T "), st.times(), st.sampled_from(["", ".123456"])
)
ZONES = st.sampled_from(["", "Z", "+05:30", "-14:00", "+24:00"])


def cells(words: str, *others: str) -> st.SearchStrategy[str]:
    return st.sampled_from(COMMON) | st.sampled_from([*words.split(), *others])


MISSING = st.lists(cells("-999 -999.0 -999.5 0 nan 1e3 none"), max_size=3, unique=True)
CELLS = {
    # TensorFlow takes what is subnormal for 0.
    "float": cells("-999 -999.0 0 -0.0 1000 inf 1e39", " -999")
    | st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(repr),
    "int": cells("-999 0 1000") | st.integers(-(2**63), 2**63 - 1).map(str),
    "time": cells("0 2024-02-30 1900-02-29 2000-02-29 9999-12-31T23:59:59.9999999Z")
    | st.builds("{}{}{}".format, st.dates(), CLOCKS, ZONES)
    | st.dates().map(str),
    "string": cells("-999 -999.0 0 Bonn none None"),
    "bool": cells("0 true True f No 1 maybe", " YES\t", "\u00a0true", "\u0130"),
}
DEFAULTS = {"float": [0.1, -999, 0], "int": [-999, 0], "string": ["", "Ulm"]}
DEFAULTS |= {"bool": [True, False], "time": [-1, 0]}
# Cells of numbers that only a text can have.
ODD = CELLS | {
    "float": cells("+.5 5. 1e400 1_000 0x10 infinity 16777217.0000001", "1 2", "\t7 "),
    "int": cells("+7 7.0 1e3 9223372036854775808 -9223372036854775809 00012 1_0", " 7\t")
    | st.integers(2**63 - 2000, 2**63 + 2000).map(str),
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
}


@st.composite
def tables(draw, kinds: list[str], *, odd: bool = False) -> tuple[dict, dict[str, list[str]]]:
    """A schema, and cells of a file by column."""
    count, columns, texts = draw(st.integers(1, 4)), {}, {}
    for name in ("c0", "c1", "c2")[: draw(st.integers(1, 3))]:
        kind = draw(st.sampled_from(kinds))
        columns[name] = {"type": kind}
        if draw(st.booleans()):
            columns[name]["default"] = draw(st.sampled_from(DEFAULTS[kind]))
        cell = CELLS[kind] | ODD[kind] if odd else CELLS[kind]
        texts[name] = draw(st.lists(cell, min_size=count, max_size=count))
    is_number = columns["c0"]["type"] in ("float", "time")
    schema = {
        "name": "t",
        "origin": "t",
        "columns": {**columns, "said": {"type": "string"}},
        "label": {"column": "said", "classes": ["no", "yes"]},
        "missing": draw(MISSING),
        "wide": [
            {"column": "c0", **({"numeric": "z_score"} if is_number else {"hash_buckets": 3})}
        ],
    }
    return schema, {**texts, "said": ["yes"] * count}


def sent(cell: str, feature: Feature) -> object:
    """Returns what a client sends for a cell of a file; None where it cannot say that."""
    if feature.dtype == "string":
        return cell.encode()
    if cell in feature.missing:
        mark = next(iter(marks(feature.missing, "int64")), feature.default)
        return np.nan if feature.type == "float" else mark
    with contextlib.suppress(ValueError):
        return float(cell) if feature.type == "float" else int(cell)


def assert_same(actual: tf.Tensor, expected: tf.Tensor | np.ndarray) -> None:
    """Compares to the bit."""
    actual, expected = (np.asarray(values) for values in (actual, expected))
    assert actual.tolist() == expected.tolist()
    assert actual.dtype == object or actual.tobytes() == expected.tobytes()


def convert(schema: dict, texts: dict[str, list[str]]) -> Block:
    rows = [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]
    with tempfile.TemporaryDirectory() as directory:
        files = trips.write(pathlib.Path(directory), rows, schema)
        source = TextSource(name="csv", schema=files["schema"])
        return read_all(source, files["source"]).blocks["train"][0]


def manifest_of(schema: dict) -> Manifest:
    """The manifest of the table's features, as far as it matters here."""
    features = []
    for name, column in schema["columns"].items():
        kind, default = column["type"], column.get("default")
        features.append(
            Feature(
                name=name,
                type=kind,
                dtype=DTYPES[kind],
                missing=tuple(schema["missing"]),
                default=str(default).lower() if isinstance(default, bool) else default,
            )
        )
    *inputs, _ = features
    names = tuple(feature.name for feature in inputs)
    return Manifest(
        name="t",
        origin="t",
        label="label",
        class_names=(),
        record_bytes=None,
        features=tuple(inputs),
        wide=(Encoding(kind="cross", columns=names, hash_buckets=3),),
        splits={},
        arguments={},
    )


def parsed(
    manifest: Manifest, texts: dict[str, list[str]]
) -> tuple[dict[str, tf.Tensor], list[bytes]]:
    names = [feature.name for feature in manifest.features]
    columns, faults = parse_texts(manifest, {name: tf.constant(texts[name]) for name in names})
    return columns, faults.numpy().tolist()


@pytest.mark.parametrize("kind", DEFAULTS)
def test_missing_text_becomes_default(kind):
    for default in DEFAULTS[kind]:
        columns = {"c0": {"type": kind, "default": default}, "said": {"type": "string"}}
        manifest = manifest_of({"columns": columns, "missing": [""]})
        values, faults = parsed(manifest, {"c0": [""]})
        expected = manifest.features[0].default
        assert faults == [b""]
        assert values["c0"][0] == tf.constant(expected, values["c0"].dtype)


@given(tables([*CELLS], odd=True))
def test_texts_become_what_converter_stores(table):
    """Texts become, to the bit, what the converter stores; those that it refuses have a fault."""
    schema, texts = table
    columns, faults = parsed(manifest_of(schema), texts)
    try:
        block = convert(schema, texts)
    except UserError as error:
        named = re.findall("line [0-9]+: (c[0-9]: )", str(error))
        assert {fault[:4].decode() for fault in faults} & {*named}
        return
    assert not any(faults)
    for name, values in columns.items():
        assert_same(values, block.columns[name])


@settings(max_examples=5 * settings.default.max_examples)
@given(tables(["float", "int", "string", "bool"]))
def test_values_become_what_their_texts_do(table):
    """Values of a client become, to the bit, what their texts in a file do, or both are refused."""
    schema, texts = table
    manifest = manifest_of(schema)
    columns, faults = parsed(manifest, texts)
    typed = {}
    for f in manifest.features:
        values = [sent(cell, f) for cell in texts[f.name]]
        if None in values:
            assert any(faults)
            return
        with np.errstate(over="ignore"):
            typed[f.name] = tf.constant(np.array(values, NUMPY[f.type]), f.dtype)
    if any(faults):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"c\d: a value is"):
            serving_preprocessing(manifest, typed)
        return
    for given_columns in (typed, columns):
        served = serving_preprocessing(manifest, given_columns)
        for name, expected in columns.items():
            assert_same(served[name], expected)
