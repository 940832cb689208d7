from __future__ import annotations

import shutil

import pytest

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.writing.publish import publish
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dataset")
    convert(Options(output=str(directory)))
    return directory


def test_a_published_dataset_is_a_copy_without_what_an_earlier_attempt_left(tmp_path, dataset, content):
    destination = tmp_path / "bucket" / "output"
    destination.mkdir(parents=True)
    (destination / "train-00008-of-00009.tfrecord").write_text("half")
    (destination / "manifest.json").write_text("old")
    publish(dataset, destination)
    assert content(destination) == content(dataset)


def test_files_of_others_stay(tmp_path, dataset):
    (tmp_path / "notes.txt").write_text("precious")
    publish(dataset, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "precious" and Manifest.load(tmp_path) == Manifest.load(dataset)


def test_the_manifest_comes_last_and_a_failure_leaves_nothing(tmp_path, dataset, monkeypatch):
    copy, copied = shutil.copyfile, []

    def full_at_the_end(source, target):
        copied.append(target.name)
        copy(source, target)
        if target.name == "manifest.json":
            raise OSError(28, "No space left on device")
        with pytest.raises(UserError, match="no finished dataset"):
            Manifest.load(tmp_path)

    monkeypatch.setattr(shutil, "copyfile", full_at_the_end)
    with pytest.raises(OSError, match="No space"):
        publish(dataset, tmp_path)
    assert copied[-1] == "manifest.json" and len(copied) > 8 and not list(tmp_path.iterdir())
