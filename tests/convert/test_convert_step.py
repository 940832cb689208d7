"""Datasets that runs share are converted once, whoever comes first."""

import concurrent.futures
import pathlib

import pytest
from dataset_files import read_folder
from kfp import dsl

from common.storage.files import read_bytes
from components.convert import component, output
from components.convert import step as convert_step
from components.convert.output import PAGE


@pytest.fixture
def step(tmp_path):
    """Runs the pipeline's step, which keeps the dataset in a store."""

    def run(name, place=f"{tmp_path}/store/digits"):
        page = dsl.HTML(name="page", uri=str(tmp_path / f"{name}.html"))
        directory = component.convert(["--processes=1"], "", place, page)
        assert pathlib.Path(page.path).read_bytes() == read_bytes(f"{directory}/{PAGE}")
        return directory, page.metadata

    return run


def test_steps_at_once_convert_once(step, monkeypatch):
    converted, original = [], convert_step.convert

    def count(options):
        converted.append(options.output)
        return original(options)

    monkeypatch.setattr(convert_step, "convert", count)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        directories, metadata = zip(*pool.map(step, "abc"), strict=True)
    assert len(converted) == len({*directories}) == 1
    assert [shown["train"] for shown in metadata] == [1307] * 3


@pytest.mark.parametrize("harmed", ["train-00000.tfrecord", PAGE, "manifest.json"])
def test_damaged_dataset_is_converted_again(step, harmed):
    dataset = pathlib.Path(step("a")[0])
    files = read_folder(dataset)
    (dataset / harmed).unlink()
    if harmed == "manifest.json":
        (dataset / ".converting").mkdir()
    assert convert_step.ready(str(dataset)) is None
    step("b")
    assert read_folder(dataset) == files


def test_unreadable_dataset_is_kept(step):
    dataset = pathlib.Path(step("a")[0])
    (dataset / "manifest.json").unlink()
    (dataset / "manifest.json").symlink_to("manifest.json")
    with pytest.raises(OSError, match="symbolic links"):
        convert_step.ready(str(dataset))
    assert (dataset / PAGE).exists()


def test_dataset_in_bucket_is_reused(step, bucket, capsys):
    place = "gs://demo/datasets/digits"
    metadata = [step(name, place)[1] for name in "ab"]
    assert metadata[0] == metadata[1]
    assert f"{place}: converted already" in capsys.readouterr().out
    (bucket / "datasets/digits/train-00000.tfrecord").write_bytes(b"short")
    assert convert_step.ready(place) is None and not [*bucket.rglob("*.tfrecord")]


def test_conversions_at_once_share_bucket(step, bucket, monkeypatch):
    """A conversion that another one overtakes ends well, as both write the same bytes."""
    place, publish = "gs://demo/datasets/digits", output.publish

    def overtaken(*arguments):
        publish(*arguments)
        publish(*arguments)

    monkeypatch.setattr(output, "publish", overtaken)
    assert step("a", place)[0] == place and convert_step.ready(place)
