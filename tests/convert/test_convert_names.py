"""A name that is no text, as old archives have them, is a name all the same; only a class has to be told in words."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import source_digest
from trainer.base.errors import escape_output
from trainer.base.manifest import Manifest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="file systems of others take no such names")
ROOT = pathlib.Path(__file__).parents[2]
PLACES = ("output", "source", "idx folder", "image", "stray", "csv", "schema", "tfrecord")


ODD = os.fsdecode(b"caf\xe9\n\x80")


def make(root: pathlib.Path, place: str, name: str, make_idx, write_records) -> dict[str, str]:
    """A source with the name at a place, and its flags."""
    root.mkdir()
    schema, source = root / (name if place == "schema" else "schema.yaml"), root / "source"
    head = "name: t\norigin: t\n"
    if place in ("idx folder", "output"):
        make_idx(source := root / (name if place == "idx folder" else "s"), train=30, test=10)
        return {"dataset": "mnist", "source": str(source)}
    if place in ("image", "stray", "source"):
        source = root / (name if place == "source" else "images")
        for kind in ("lily", "rose"):
            (source / kind).mkdir(parents=True)
            for i in range(4):
                image = f"{i}{name}.png" if place == "image" else f"{i}.png"
                Image.fromarray(np.full((3, 3), i, np.uint8)).save(source / kind / image)
        (source / "lily" / (name if place == "stray" else "notes.txt")).write_text("no image")
        return {"dataset": "images", "source": str(source)}
    if place == "tfrecord":
        records = [{"image": bytes([i] * 4), "label": i % 2} for i in range(30)]
        write_records(source := root / f"train{name}.tfrecord", records)
        schema.write_text(head + "image: image\nlabel: label\nclasses: [a, b]\nshape: [2, 2, 1]\n")
        return {"dataset": "tfrecord", "source": str(source), "schema": str(schema)}
    (source := root / (f"{name}.csv" if place == "csv" else "rows.csv")).write_text("a,kind\n" + "1,x\n2,y\n" * 20)
    columns = "columns: {a: {type: int}, kind: {type: string}}\nlabel: {column: kind, classes: [x, y]}\n"
    schema.write_text(head + columns + "wide: [{column: a, hash_buckets: 9}]\n")
    return {"dataset": "csv", "source": str(source), "schema": str(schema)}


@pytest.mark.parametrize("place", PLACES)
def test_a_file_may_have_any_name(tmp_path, make_idx, write_records, place):
    made = []
    for kind, name in (("odd", ODD), ("plain", "plain")):
        flags = make(tmp_path / kind, place, name, make_idx, write_records)
        out = tmp_path / kind / (name if place == "output" else "out")
        escape_output()
        convert(Options(**flags, output=str(out), shards=1))
        assert len(source_digest(flags["dataset"], flags["source"], flags.get("schema"))) == 64
        made.append(Manifest.load(out))
    assert place == "image" or made[0] == made[1]  # the order of images is their names'


def test_a_class_that_cannot_be_told_in_words_is_refused_at_the_start(tmp_path):
    for kind in (ODD, "lily"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / "images" / kind / "1.png")
    with pytest.raises(ValueError, match="is not UTF-8; rename that folder") as told:
        convert(Options(dataset="images", source=str(tmp_path / "images"), output=str(tmp_path / "out"), shards=1))
    assert "\\udc" in str(told.value).encode(errors="backslashreplace").decode() and "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.cluster
def test_what_is_printed_of_such_names_is_escaped(tmp_path, make_idx):
    odd = os.fsdecode(b"caf\xe9")
    make_idx(tmp_path / odd, train=30)
    command = [sys.executable, "-m", "components.convert", "--dataset", "idx", "--source", str(tmp_path / odd)]
    good = subprocess.run([*command, "--output", str(tmp_path / f"{odd}-out")], cwd=ROOT, capture_output=True)
    assert good.returncode == 0 and rb"caf\udce9-out: idx is ready" in good.stdout and not good.stderr
    bad = subprocess.run([*command, "--output", str(tmp_path / odd)], cwd=ROOT, capture_output=True)
    assert bad.returncode == 2 and bad.stderr.count(b"\n") == 1 and rb"caf\udce9" in bad.stderr
