"""A model that is sent what the source has answers as of what the converter made of it, and refuses what that refuses."""

import contextlib
import csv
import pathlib
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import yaml
from hypothesis import given
from hypothesis import strategies as st
from opened import read_all

from common.errors import UserError
from common.manifest import Encoding, Feature, Manifest
from common.spellings import marks
from components.convert.source import Block, Examples
from components.convert.sources.tables import TextSource
from trainer.data.serving_preprocessing import serving_preprocessing

LABEL = {"column": "said", "classes": ["no", "yes"]}
DTYPES = {"float": "float32", "int": "int64", "string": "string", "bool": "string"}
NUMPY = {"float": np.float32, "int": np.int64, "string": object, "bool": object}
MISSING = st.lists(
    st.sampled_from(["", "NA", "-999", "-999.0", "-999.5", "0", "nan", "1e3", " ", "none"]), max_size=3, unique=True
)
CELLS = {
    "float": st.sampled_from(["", "NA", "-999", "-999.0", " -999", "0", "-0.0", "1000", "inf", "0.1", "1e39"])
    # TensorFlow takes what is subnormal for 0.
    | st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(repr),
    "int": st.sampled_from(["", "NA", "-999", "0", "1000", "7"]) | st.integers(-(2**63), 2**63 - 1).map(str),
    "string": st.sampled_from(["", "NA", "-999", "-999.0", "0", " ", "Bonn", "none", "None"]),
    "bool": st.sampled_from(["", "NA", "0", "true", "True", " YES\t", "f", "No", "1", "maybe", "\u00a0true", "\u0130"]),
}
DEFAULTS = {
    "float": st.sampled_from([0.1, -999, 0]),
    "int": st.sampled_from([-999, 3]),
    "string": st.sampled_from(["", "Ulm"]),
    "bool": st.booleans(),
}


@st.composite
def tables(draw) -> tuple[dict, dict[str, list[str]]]:
    """A schema, and cells of a file by column."""
    count, columns, cells = draw(st.integers(1, 4)), {}, {}
    for i in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(list(CELLS)))
        default = draw(st.none() | DEFAULTS[kind])
        columns[f"c{i}"] = {"type": kind, **({} if default is None else {"default": default})}
        cells[f"c{i}"] = draw(st.lists(CELLS[kind], min_size=count, max_size=count))
    schema = {"name": "t", "origin": "t", "columns": {**columns, "said": {"type": "string"}}, "label": LABEL}
    how = {"numeric": "z_score"} if columns["c0"]["type"] == "float" else {"hash_buckets": 3}
    schema |= {"missing": draw(MISSING), "wide": [{"column": "c0", **how}]}
    return schema, {**cells, "said": ["yes"] * count}


def sent(cell: str, kind: str, default: object, missing: list[str]) -> object:
    """What a client sends for a cell of a file; None where it cannot say that."""
    if DTYPES[kind] == "string":
        return cell.encode()
    if cell in missing:
        return np.nan if kind == "float" else next(iter(marks(missing, "int64")), default)
    with contextlib.suppress(ValueError):
        return float(cell) if kind == "float" else int(cell)


def convert(schema: dict, cells: dict[str, list[str]]) -> tuple[Examples, Block]:
    with tempfile.TemporaryDirectory() as directory:
        (file := pathlib.Path(directory, "schema.yaml")).write_text(yaml.safe_dump(schema))
        with open(pathlib.Path(directory, "rows.csv"), "w", newline="", encoding="utf-8") as table:
            csv.writer(table, quoting=csv.QUOTE_ALL).writerows([cells, *zip(*cells.values(), strict=True)])
        opened = read_all(TextSource(name="csv", schema=file), table.name)
        return opened.examples, opened.blocks["train"][0]


def of(features: tuple[Feature, ...]) -> Manifest:
    """A table's manifest, as far as it matters here."""
    wide = (Encoding(kind="hash", columns=("c0",), hash_buckets=3),)
    said = {"name": "t", "origin": "t", "label": "label", "class_names": (), "record_bytes": None}
    return Manifest(features=features, wide=wide, splits={}, arguments={}, **said)


@given(tables())
def test_what_a_client_sends_becomes_what_the_converter_stored_to_the_bit_or_both_refuse_it(table):
    schema, cells = table
    columns, missing = schema["columns"], schema["missing"]
    columns = {name: column for name, column in columns.items() if name != "said"}
    given = {n: [sent(cell, c["type"], c.get("default"), missing) for cell in cells[n]] for n, c in columns.items()}
    sendable = all(value is not None for values in given.values() for value in values)
    try:
        source, block = convert(schema, cells)
    except UserError:
        source = None
    rules = {n: {"missing": tuple(missing), "boolean": c["type"] == "bool" or None} for n, c in columns.items()}
    defaults = {n: c.get("default") for n, c in columns.items()}
    defaults |= {n: str(default).lower() for n, default in defaults.items() if isinstance(default, bool)}
    made = tuple(Feature(name=n, dtype=DTYPES[c["type"]], default=defaults[n], **rules[n]) for n, c in columns.items())
    assert source is None or set(source.features) >= set(made)
    if not sendable:
        assert source is None
        return
    with np.errstate(over="ignore"):
        kinds = {n: c["type"] for n, c in columns.items()}
        arrays = {n: tf.constant(np.array(v, NUMPY[kinds[n]]), DTYPES[kinds[n]]) for n, v in given.items()}
    if source is None:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"c\d: a value is"):
            serving_preprocessing(of(made), arrays)
        return
    stored = {n: block.columns[n] for n in columns}
    clean = {n: tf.constant(v.tolist() if DTYPES[columns[n]["type"]] == "string" else v) for n, v in stored.items()}
    for found in (serving_preprocessing(of(made), arrays), serving_preprocessing(of(made), clean)):
        for name, values in clean.items():
            assert found[name].numpy().tolist() == values.numpy().tolist()
            assert values.dtype == tf.string or found[name].numpy().tobytes() == values.numpy().tobytes()
