"""Datasets that runs share are converted once, whoever comes first."""

import concurrent.futures
import pathlib

import pytest
from kfp import dsl

from components.convert import component, store
from components.convert import step as convert_step
from components.convert.output import PAGE


@pytest.fixture
def step(tmp_path):
    """Runs the pipeline's step, which keeps the dataset in a store."""

    def run(name):
        output = dsl.Dataset(name="output", uri=str(tmp_path / name))
        page = dsl.HTML(name="page", uri=str(tmp_path / f"{name}.html"))
        component.convert(["--processes=1"], "", "", f"{tmp_path}/store", output, page)
        assert pathlib.Path(page.path).read_text() == (pathlib.Path(output.path) / PAGE).read_text()
        return output

    return run


def test_steps_at_once_convert_once(step, monkeypatch):
    converted, original = [], convert_step.convert

    def count(options):
        converted.append(options.output)
        return original(options)

    monkeypatch.setattr(convert_step, "convert", count)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        outputs = list(pool.map(step, "abc"))
    assert len(converted) == len({output.path for output in outputs}) == 1
    assert [output.metadata["train"] for output in outputs] == [1307] * 3


@pytest.mark.parametrize(
    "harm", ["shorter", "train-00000.tfrecord", PAGE, "manifest.json", ".converting"]
)
def test_damaged_dataset_is_converted_again(step, harm):
    dataset = pathlib.Path(step("a").path)
    files = {path.name: path.read_bytes() for path in dataset.iterdir()}
    if harm == "shorter":
        (dataset / "train-00000.tfrecord").write_bytes(files["train-00000.tfrecord"][:-1])
    elif harm == ".converting":
        (dataset / "manifest.json").unlink()
        (dataset / harm).mkdir()
    else:
        (dataset / harm).unlink()
    assert store.ready(dataset) is None
    step("b")
    assert {path.name: path.read_bytes() for path in dataset.iterdir()} == files
