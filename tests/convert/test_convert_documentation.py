"""Schemas and programs in the pages on datasets work as they are written."""

import pathlib
import re
import shutil

import numpy as np
import pytest
import yaml
from PIL import Image

from components.convert.convert import convert
from components.convert.expressions import columns_of
from components.convert.options import Options
from components.convert.schema import Column, ImageSchema, Label, TableSchema, load
from components.convert.sources.registry import SOURCES
from pipelines.local.cache import cache_key

DOCS = pathlib.Path(__file__).parents[2] / "docs"
USING = (DOCS / "DATASETS.md").read_text() + (DOCS / "SCHEMAS.md").read_text()
ADDING = (DOCS / "CHANGING.md").read_text().partition("## Adding a source")[2]
HEADER = "fare,tips,trip_seconds,company,payment_type,trip_start_hour,trip_miles"


def block(pattern: str, text: str = USING) -> str:
    """Returns the only block of a text that begins so."""
    blocks = re.findall(rf"```{pattern}.*?)```", text, re.DOTALL)
    (only,) = (block for block in blocks if not re.search("beam.Pipeline|^apiVersion", block))
    return only


def run(code: str) -> dict:
    """Runs a program; returns the names that it leaves."""
    names: dict = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("options", [{"image_size": "6x5"}, {}])
def test_documented_program_reads_images(tmp_path, monkeypatch, options):
    for i in range(40):
        path = tmp_path / "source" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30 + i, 20), (i, 0, 0)).save(path)
    convert(
        Options(
            dataset="images",
            source=str(tmp_path / "source"),
            output=str(tmp_path / "data/flowers"),
            **options,
        )
    )
    monkeypatch.chdir(tmp_path)
    names = run(block("python\n("))
    batch, labels = names["batch"].numpy(), names["labels"].numpy()
    assert [*batch.shape[1:]] == names["features"]["image"]["shape"] and batch.dtype == np.uint8
    assert (batch[:, 0, 0, 0] % 2 == labels).all() and len(labels) > 20


def test_documented_program_reads_table(tmp_path, monkeypatch):
    (tmp_path / "trips.yaml").write_text(block("yaml\n("))
    rows = [
        f"{i},{i / 10 * (i % 4)},{i if i % 5 else 'NA'},{'Blue' if i % 3 else ''},Cash,{i % 24},1.5"
        for i in range(50)
    ]
    (tmp_path / "trips.csv").write_text("\n".join([HEADER, *rows]))
    monkeypatch.chdir(tmp_path)
    convert(Options(dataset="csv", schema="trips.yaml", source="trips.csv", output="data/flowers"))
    names = run(block("python\n("))
    assert names["batch"].keys() == {"fare", "tips", "seconds", "company", "payment", "hour"}
    tips = names["batch"]["tips"].numpy() > np.float32(0.2) * names["batch"]["fare"].numpy()
    assert (tips == names["labels"].numpy()).mean() > 0.9


def test_documented_program_reads_targets(tmp_path, monkeypatch):
    schema, others = block("\n(name: tips\n"), block("\n(label: ")
    rows = [f"{i},{i / 10 if i % 9 else ''},{i},Blue,Cash,{i % 24},{i / 3}" for i in range(50)]
    (tmp_path / "trips.csv").write_text("\n".join([HEADER, *rows]))
    monkeypatch.chdir(tmp_path)
    for i, label in enumerate(["label: {regression: tips}", *others.splitlines()]):
        (tmp_path / "tips.yaml").write_text(schema.replace("label: {regression: tips}", label))
        options = Options(
            dataset="csv", schema="tips.yaml", source="trips.csv", output="data/flowers"
        )
        assert convert(options).task == ("multi_label" if "multi" in label else "regression")
        names = run(block("python\n("))
        fares, labels = names["batch"]["fare"].numpy(), names["labels"].numpy()
        assert labels.shape[1:] == ((2,) if i else ())
        first = [fares / 10, fares / 10, fares + fares / 10, fares > 0][i]
        assert np.allclose(labels.reshape(len(fares), -1)[:, 0], first)
        shutil.rmtree("data")


def test_documentation_names_datasets_and_keys(tmp_path):
    keys = {*SOURCES, *TableSchema.model_fields, *ImageSchema.model_fields} - {"content", "columns"}
    keys |= {f"label.{key}" for key in Label.model_fields}
    keys |= {f"columns.NAME.{key}" for key in Column.model_fields.keys() - {"name"}}
    assert [key for key in sorted(keys) if f"`{key}`" not in USING] == []
    (tmp_path / "records.yaml").write_text(block("\n(name: flowers "))
    assert load(tmp_path / "records.yaml").first_label == 1
    filters = re.findall(r"^filter: (.*)$", USING, re.MULTILINE)
    types = {
        "fare": "float",
        "tips": "float",
        "seconds": "int",
        "payment": "string",
        "company": "string",
        "start": "time",
    }
    assert len(filters) > 4 and all(
        columns_of(yaml.safe_load(sql), types, "filter") for sql in filters
    )


def test_documented_source_is_added(tmp_path, monkeypatch):
    assert "import `NpzSource` and add `NpzSource()` to `SOURCES`" in ADDING
    monkeypatch.setitem(SOURCES, "npz", run(block("python\n(", ADDING))["NpzSource"]())
    arrays = {}
    for split, count in (("train", 60), ("test", 7)):
        arrays[f"x_{split}"] = np.arange(count * 20, dtype=np.uint8).reshape(count, 5, 4)
        arrays[f"y_{split}"] = np.arange(count) % 3
    path = tmp_path / "images.npz"
    np.savez(path, **arrays)
    manifest = convert(Options(dataset="npz", source=str(path), output=str(tmp_path / "out")))
    assert manifest.splits["test"].examples == 7
    flags = ["--dataset=npz", f"--source={path}"]
    key = cache_key(flags, "")
    path.write_bytes(path.read_bytes() + b"more")
    assert cache_key(flags, "") != key
