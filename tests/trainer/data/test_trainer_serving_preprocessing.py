"""Preprocessing inside an exported model, compared with the converter."""

import contextlib
import csv
import itertools
import pathlib
import re
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from opened import read_all

from common.errors import UserError
from common.manifest import Encoding, Feature, Manifest
from common.spellings import marks
from components.convert.source import Block
from components.convert.sources.tables import TextSource
from trainer.data.serving_preprocessing import parse_texts, serving_preprocessing

LABEL = {"column": "said", "classes": ["no", "yes"]}
DTYPES = {"float": "float32", "int": "int64", "string": "string", "bool": "string", "time": "int64"}
SENDABLE = ("float", "int", "string", "bool")
NUMPY = {"float": np.float32, "int": np.int64, "string": object, "bool": object}
MISSING = st.lists(
    st.sampled_from(["", "NA", "-999", "-999.0", "-999.5", "0", "nan", "1e3", " ", "none"]),
    max_size=3,
    unique=True,
)
CLOCKS = st.builds(
    "{}{:%H:%M:%S}{}".format,
    st.sampled_from("T "),
    st.times(),
    st.sampled_from(["", ".5", ".123456"]),
)
CLOCKS |= st.times().map("T{:%H:%M}".format)
CELLS = {
    "float": st.sampled_from(
        ["", "NA", "-999", "-999.0", " -999", "0", "-0.0", "1000", "inf", "0.1", "1e39"]
    )
    # TensorFlow takes what is subnormal for 0.
    | st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(repr),
    "int": st.sampled_from(["", "NA", "-999", "0", "1000", "7"])
    | st.integers(-(2**63), 2**63 - 1).map(str),
    "time": st.sampled_from(
        ["", "NA", "0", "2024-02-30", "1900-02-29", "2000-02-29", "9999-12-31T23:59:59.9999999Z"]
    )
    | st.builds(
        "{}{}{}".format,
        st.dates(),
        CLOCKS,
        st.sampled_from(["", "Z", "+05:30", "-14:00", "+24:00"]),
    )
    | st.dates().map(str),
    "string": st.sampled_from(["", "NA", "-999", "-999.0", "0", " ", "Bonn", "none", "None"]),
    "bool": st.sampled_from(
        ["", "NA", "0", "true", "True", " YES\t", "f", "No", "1", "maybe", "\u00a0true", "\u0130"]
    ),
}
DEFAULTS = {
    "float": st.sampled_from([0.1, -999, 0]),
    "int": st.sampled_from([-999, 3]),
    "string": st.sampled_from(["", "Ulm"]),
    "bool": st.booleans(),
    "time": st.sampled_from([-1, 0]),
}
# Cells of numbers that only a text can have.
ODD = {
    "float": st.sampled_from(
        [
            "+.5",
            "5.",
            "1e400",
            "1_000",
            "0x10",
            "infinity",
            "1 2",
            "\t7 ",
            "1e-5",
            "16777217.0000001",
        ]
    ),
    "int": st.sampled_from(
        ["+7", " 7\t", "7.0", "1e3", "9223372036854775808", "-9223372036854775809", "00012", "1_0"]
    )
    | st.integers(2**63 - 2000, 2**63 + 2000).map(str),
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
}


@st.composite
def tables(draw, kinds: tuple[str, ...], *, odd: bool = False) -> tuple[dict, dict[str, list[str]]]:
    """A schema, and cells of a file by column."""
    count, columns, cells = draw(st.integers(1, 4)), {}, {}
    for i in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        default = draw(st.none() | DEFAULTS[kind])
        columns[f"c{i}"] = {"type": kind, **({} if default is None else {"default": default})}
        cell = CELLS[kind] | ODD.get(kind, CELLS[kind]) if odd else CELLS[kind]
        cells[f"c{i}"] = draw(st.lists(cell, min_size=count, max_size=count))
    schema = {
        "name": "t",
        "origin": "t",
        "columns": {**columns, "said": {"type": "string"}},
        "label": LABEL,
    }
    how = (
        {"numeric": "z_score"}
        if columns["c0"]["type"] in ("float", "time")
        else {"hash_buckets": 3}
    )
    schema |= {"missing": draw(MISSING), "wide": [{"column": "c0", **how}]}
    return schema, {**cells, "said": ["yes"] * count}


def sent(cell: str, feature: Feature, missing: list[str]) -> object:
    """Returns what a client sends for a cell of a file; None where it cannot say that."""
    if feature.dtype == "string":
        return cell.encode()
    if cell in missing:
        return (
            np.nan
            if feature.type == "float"
            else next(iter(marks(missing, "int64")), feature.default)
        )
    with contextlib.suppress(ValueError):
        return float(cell) if feature.type == "float" else int(cell)


def convert(schema: dict, cells: dict[str, list[str]]) -> Block:
    with tempfile.TemporaryDirectory() as directory:
        (file := pathlib.Path(directory, "schema.yaml")).write_text(yaml.safe_dump(schema))
        with open(pathlib.Path(directory, "rows.csv"), "w", newline="", encoding="utf-8") as table:
            csv.writer(table, quoting=csv.QUOTE_ALL).writerows(
                [cells, *zip(*cells.values(), strict=True)]
            )
        return read_all(TextSource(name="csv", schema=file), table.name).blocks["train"][0]


def manifest_of(schema: dict) -> Manifest:
    """The manifest of the table's features, as far as it matters here."""
    features = []
    for name, column in schema["columns"].items():
        if name != "said":
            default = column.get("default")
            default = str(default).lower() if isinstance(default, bool) else default
            facts = {
                "type": column["type"],
                "dtype": DTYPES[column["type"]],
                "missing": tuple(schema["missing"]),
            }
            features.append(Feature(name=name, default=default, **facts))
    wide = (
        Encoding(kind="cross", columns=tuple(feature.name for feature in features), hash_buckets=3),
    )
    said = {"name": "t", "origin": "t", "label": "label", "class_names": (), "record_bytes": None}
    return Manifest(features=tuple(features), wide=wide, splits={}, arguments={}, **said)


@given(tables(tuple(CELLS), odd=True))
def test_texts_become_what_converter_stores(table):
    """Texts become, to the bit, what the converter stores of them, and those that it refuses have a fault."""
    schema, cells = table
    manifest = manifest_of(schema)
    columns, faults = parse_texts(
        manifest, {f.name: tf.constant(cells[f.name]) for f in manifest.features}
    )
    try:
        block = convert(schema, cells)
    except UserError as error:
        assert {fault[:4].decode() for fault in faults.numpy()} & {
            *re.findall("line [0-9]+: (c[0-9]: )", str(error))
        }
        return
    assert not any(faults.numpy())
    for name, values in columns.items():
        stored = block.columns[name]
        assert values.numpy().tolist() == stored.tolist()
        assert values.dtype == tf.string or values.numpy().tobytes() == stored.tobytes()


@settings(max_examples=5 * settings.default.max_examples)
@given(tables(SENDABLE))
def test_values_become_what_their_texts_do(table):
    """Values that a client sends become, to the bit, what their texts in a file do, or both are refused."""
    schema, cells = table
    manifest = manifest_of(schema)
    features = manifest.features
    parsed, faults = parse_texts(manifest, {f.name: tf.constant(cells[f.name]) for f in features})
    values = {
        f.name: [sent(cell, f, schema["missing"]) for cell in cells[f.name]] for f in features
    }
    if None in itertools.chain(*values.values()):
        assert any(faults.numpy())
        return
    with np.errstate(over="ignore"):
        typed = {
            f.name: tf.constant(np.array(values[f.name], NUMPY[f.type]), f.dtype) for f in features
        }
    if any(faults.numpy()):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"c\d: a value is"):
            serving_preprocessing(manifest, typed)
        return
    for columns in (typed, parsed):
        served = serving_preprocessing(manifest, columns)
        for name, expected in parsed.items():
            assert served[name].numpy().tolist() == expected.numpy().tolist()
            assert (
                expected.dtype == tf.string
                or served[name].numpy().tobytes() == expected.numpy().tobytes()
            )
