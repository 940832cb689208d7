"""A name that is no text, as old archives have them, is a name all the same; only a class has to be told in words."""

import os
import pathlib
import sys

import numpy as np
import pytest
from PIL import Image

from common.cli import set_up_output
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import source_digest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="file systems of others take no such names")
ROOT = pathlib.Path(__file__).parents[3]
ODD = os.fsdecode(b"caf\xe9\n\x80")


@pytest.mark.parametrize(
    ("dataset", "place"),
    [
        ("mnist", ""),
        ("images", ""),
        ("images", "rose/2.png"),
        ("images", "lily/notes.txt"),
        ("csv", "b.csv"),
        ("csv", "schema.yaml"),
        ("tfrecord", "a.tfrecord"),
    ],
)
def test_a_file_may_have_any_name(tmp_path, made, dataset, place):
    manifests = []
    for name in (ODD, "plain"):
        flags, path = made(dataset, place, tmp_path / name)
        renamed = path.rename(path.with_name(name + path.suffix))
        flags = {key: str(renamed) if value == str(path) else value for key, value in flags.items()}
        set_up_output()
        manifests.append(convert(Options(**flags, output=str(tmp_path / name / "out"), shards=1)))
        assert len(source_digest(flags["dataset"], flags["source"], flags.get("schema"))) == 64
    assert place == "rose/2.png" or manifests[0] == manifests[1]  # the order of images is their names'


def test_a_class_that_cannot_be_told_in_words_is_refused_at_the_start(tmp_path):
    for kind in (ODD, "lily"):
        (tmp_path / "images" / kind).mkdir(parents=True)
        Image.fromarray(np.zeros((3, 3), np.uint8)).save(tmp_path / "images" / kind / "1.png")
    with pytest.raises(ValueError, match="is not UTF-8; rename that folder") as told:
        convert(Options(dataset="images", source=str(tmp_path / "images"), output=str(tmp_path / "out"), shards=1))
    assert "\\udc" in str(told.value).encode(errors="backslashreplace").decode() and "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()
