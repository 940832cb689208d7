"""Schemas and programs in the pages on datasets work as they are written."""

import re
import shutil

import kinds
import numpy as np
import pytest
from dataset_files import convert_to, encode_image, write_files

from components.convert.schema import Column, Label, TableSchema
from components.convert.sources.registry import SOURCES
from components.convert.step import locate
from tests.root import ROOT

DOCS = ROOT / "docs"
USING = (DOCS / "DATASETS.md").read_text() + (DOCS / "SCHEMAS.md").read_text()
ADDING = (DOCS / "CHANGING.md").read_text().partition("## Adding a source")[2]


def block(pattern, text=USING):
    """Returns the only block of a text that begins so."""
    blocks = re.findall(rf"```{pattern}.*?)```", text, re.DOTALL)
    (only,) = (block for block in blocks if not re.search("beam.Pipeline|^apiVersion", block))
    return only


def run(code):
    """Runs a program; returns the names that it leaves."""
    names: dict = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("options", [{"image_size": "6x5"}, {}])
def test_documented_program_reads_images(tmp_path, monkeypatch, options):
    convert_to(tmp_path / "data/flowers", **kinds.make("images", tmp_path), **options)
    monkeypatch.chdir(tmp_path)
    names = run(block("python\n(import json"))
    batch, labels = names["batch"].numpy(), names["labels"].numpy()
    assert [*batch.shape[1:]] == names["features"]["image"]["shape"] and batch.dtype == np.uint8
    assert len(labels) == len(batch) > 20 and {*labels} == {0, 1}


def test_documented_program_writes_image_folders(tmp_path, monkeypatch):
    import tensorflow as tf  # Slow to import.

    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"records/x": ""})
    files = [encode_image(np.full((4, 5, 3), i, np.uint8)) for i in range(9)]
    for split, part in (("train-0", files[:6]), ("test-0", files[6:])):
        with tf.io.TFRecordWriter(f"records/{split}") as writer:
            for file in part:
                features = {
                    "image": {"bytes_list": {"value": [file]}},
                    "label": {"int64_list": {"value": [files.index(file) % 2]}},
                }
                example = tf.train.Example(features={"feature": features})
                writer.write(example.SerializeToString())
    run(block("python\n(import pathlib"))
    manifest = convert_to(tmp_path / "out", dataset="images", source="downloads/flowers")
    assert manifest.splits["test"].examples == 3


@pytest.mark.long
def test_documented_program_reads_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["fare,tips,trip_seconds,company,payment_type,trip_start_hour,trip_miles"]
    for i in range(50):
        lines.append(f"{i},{i / 10 * (1 + i % 2 * 2)},{i},Blue,Cash,{i % 24},{i / 3}")
    write_files(tmp_path, {"trips.csv": "\n".join(lines)})
    schema, others = block("\n(name: tips\n"), block("\n(label: ")
    label = "label: {regression: tips}"
    schemas = [schema.replace(label, other) for other in (label, *others.splitlines())]
    for i, text in enumerate([*schemas, block("yaml\n(")]):
        write_files(tmp_path, {"trips.yaml": text})
        out = tmp_path / "data/flowers"
        convert_to(out, dataset="csv", schema="trips.yaml", source="trips.csv")
        names = run(block("python\n(import json"))
        fares, labels = names["batch"]["fare"].numpy(), names["labels"].numpy()
        tips = fares / 10 * (1 + fares % 2 * 2)
        first = [tips, tips, fares + tips, tips > 0, tips > np.float32(0.2) * fares][i]
        assert np.allclose(labels.reshape(len(fares), -1)[:, 0], first)
        shutil.rmtree(out)


def test_documentation_names_datasets_and_keys():
    keys = {*SOURCES, *TableSchema.model_fields} - {"content", "columns"}
    keys |= {f"label.{key}" for key in Label.model_fields}
    keys |= {f"columns.NAME.{key}" for key in Column.model_fields.keys() - {"name"}}
    assert [key for key in sorted(keys) if f"`{key}`" not in USING] == []


def test_documented_source_is_added(tmp_path, monkeypatch):
    assert "import `NpzSource` and add `NpzSource()` to `SOURCES`" in ADDING
    monkeypatch.setitem(SOURCES, "npz", run(block("python\n(", ADDING))["NpzSource"]())
    arrays = {}
    for split, count in (("train", 60), ("test", 7)):
        arrays[f"x_{split}"] = np.arange(count * 20, dtype=np.uint8).reshape(count, 5, 4)
        arrays[f"y_{split}"] = np.arange(count) % 3
    path = tmp_path / "images.npz"
    np.savez(path, **arrays)
    manifest = convert_to(tmp_path / "out", dataset="npz", source=path)
    assert manifest.splits["test"].examples == 7
    flags = ["--dataset=npz", f"--source={path}"]
    place = locate("", flags, "")
    write_files(tmp_path, {path.name: path.read_bytes() + b"more"})
    assert locate("", flags, "") != place
