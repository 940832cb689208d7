"""What docs/DATASETS.md shows works as it stands there."""

import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
import yaml
from PIL import Image

from common.manifest import Manifest
from components.convert.__main__ import main
from components.convert.convert import convert
from components.convert.expressions import columns_of
from components.convert.options import Options
from components.convert.schema import load
from components.convert.sources.registry import SOURCES
from pipelines.local.cache import cache_key

ROOT = pathlib.Path(__file__).parents[2]
SIZES = {"train": 60, "test": 7}


@pytest.mark.parametrize("given", [{"image_size": "6x5"}, {}, {"encoding": "source"}])
def test_the_documented_way_to_read_reads_images(tmp_path, monkeypatch, given):
    for i in range(40):
        path = tmp_path / "source" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (30 + i, 20), (i, 0, 0)).save(path)
    convert(Options(dataset="images", source=str(tmp_path / "source"), output=str(tmp_path / "data/flowers"), **given))
    monkeypatch.chdir(tmp_path)
    found = documented("python")
    height, width, channels = found["features"]["image"]["shape"]
    assert found["batch"].shape[1:] == (height, width, channels) and found["batch"].dtype == tf.uint8
    assert (found["batch"].numpy()[:, 0, 0, 0] % 2 == found["labels"].numpy()).all() and len(found["labels"]) > 20


def test_the_documented_schema_converts_and_the_documented_way_reads_the_table(tmp_path, monkeypatch):
    (tmp_path / "trips.yaml").write_text(blocks("yaml"))
    rows = [
        f"{i},{i / 10 * (i % 4)},{i if i % 5 else 'NA'},{'Blue' if i % 3 else ''},Cash,{i % 24},1.5" for i in range(50)
    ]
    (tmp_path / "trips.csv").write_text("\n".join([HEADER, *rows]))
    monkeypatch.chdir(tmp_path)
    convert(Options(dataset="csv", schema="trips.yaml", source="trips.csv", output="data/flowers"))
    found = documented("python")
    assert found["batch"].keys() == {"fare", "tips", "seconds", "company", "payment", "hour"}
    tips = found["batch"]["tips"].numpy() > np.float32(0.2) * found["batch"]["fare"].numpy()
    assert (tips == found["labels"].numpy()).mean() > 0.9


HEADER = "fare,tips,trip_seconds,company,payment_type,trip_start_hour,trip_miles"


def test_the_documented_targets_convert_and_the_documented_way_reads_them(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "DATASETS.md").read_text()
    (schema,) = re.findall(r"```\n(name: tips\n.*?)```", text, re.DOTALL)
    (others,) = re.findall(r"```\n(label: .*?)```", text, re.DOTALL)
    rows = [f"{i},{i / 10 if i % 9 else ''},{i},Blue,Cash,{i % 24},{i / 3}" for i in range(50)]
    (tmp_path / "trips.csv").write_text("\n".join([HEADER, *rows]))
    monkeypatch.chdir(tmp_path)
    shapes = []
    for i, label in enumerate(["label: {regression: tips}", *others.splitlines()]):
        (tmp_path / "tips.yaml").write_text(schema.replace("label: {regression: tips}", label))
        options = Options(dataset="csv", schema="tips.yaml", source="trips.csv", output="data/flowers")
        assert convert(options).task == ("multi_label" if "multi" in label else "regression")
        found = documented("python")
        fares, labels = found["batch"]["fare"].numpy(), found["labels"].numpy()
        shapes.append(labels.shape[1:])
        first = [fares / 10, fares / 10, fares + fares / 10, fares > 0][i]
        assert np.allclose(labels.reshape(len(fares), -1)[:, 0], first)
        shutil.rmtree("data")
    assert shapes == [(), (2,), (2,), (2,)]


def test_the_documentation_names_every_dataset_and_every_key_of_a_schema(tmp_path):
    text = (ROOT / "docs" / "DATASETS.md").read_text()
    assert all(f"`{name}`" in text for name in SOURCES)
    keys = "name origin filter deep wide missing other_columns image label classes label_offset shape"
    keys += " label.classes label.condition label.column label.regression label.multi_label"
    keys += " columns.NAME.type columns.NAME.header columns.NAME.default columns.NAME.unit"
    assert all(f"`{key}`" in text for key in keys.split())
    (of_images,) = re.findall(r"```\n(name: flowers .*?)```", text, re.DOTALL)
    (tmp_path / "records.yaml").write_text(of_images)
    assert load(tmp_path / "records.yaml").first_label == 1
    filters = re.findall(r"^filter: (.*)$", text, re.MULTILINE)
    columns = {
        "fare": "float",
        "tips": "float",
        "seconds": "int",
        "payment": "string",
        "company": "string",
        "start": "time",
    }
    assert len(filters) > 4 and all(columns_of(yaml.safe_load(sql), columns, "filter") for sql in filters)


def test_the_documented_source_is_a_file_and_an_entry(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "DATASETS.md").read_text()
    code, prose = text.partition("## Adding a source")[2].partition("```python\n")[2].split("```\n", 1)
    assert "import `NpzSource` and add `NpzSource()` to `SOURCES`" in prose
    names: dict = {}
    exec(code, names)
    monkeypatch.setitem(SOURCES, "npz", names["NpzSource"]())
    images = {f"x_{split}": np.arange(n * 20, dtype=np.uint8).reshape(n, 5, 4) for split, n in SIZES.items()}
    path = tmp_path / "images.npz"
    np.savez(path, **images, **{f"y_{split}": np.arange(n) % 3 for split, n in SIZES.items()})
    flags = ["--dataset=npz", f"--source={path}"]
    key = cache_key(flags, "")
    main([*flags, "--output", str(tmp_path / "out")])
    assert Manifest.load(tmp_path / "out").splits["test"].examples == SIZES["test"]
    path.write_bytes(path.read_bytes() + b"more")
    assert cache_key(flags, "") != key


def blocks(language: str) -> str:
    text = (ROOT / "docs" / "DATASETS.md").read_text().partition("## Adding a source")[0]
    found = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (block,) = (block for block in found if not re.search("beam.Pipeline|^apiVersion", block))
    return block


def documented(language: str) -> dict:
    """The names that the program in the documentation leaves."""
    names: dict = {}
    exec(blocks(language), names)
    return names
