"""Processes and the order of tasks decide how fast a conversion is, and no byte of it."""

import dataclasses
import random

import kinds
import pytest
from dataset_files import make_idx, read_folder

from components.convert import engine
from components.convert.convert import convert
from components.convert.options import Options


@pytest.fixture(scope="module", params=[*kinds.KINDS, "packed idx"])
def options(request, tmp_path_factory) -> Options:
    """A conversion of several hundred or thousand examples."""
    root = tmp_path_factory.mktemp("source")
    if request.param == "packed idx":
        make_idx(root / "packed", size=(9, 7), train=3000, test=500)
        source = {"dataset": "idx", "source": str(root / "packed")}
    else:
        source = kinds.make(request.param, root)
    return Options(**source, output=str(root / "out"), shards=7)


@pytest.mark.cluster
def test_processes_and_order_change_nothing(tmp_path, monkeypatch, options, expected):
    run = engine.run

    def shuffled(function, tasks, *, processes):
        order = random.Random(0).sample(range(len(tasks)), len(tasks))
        return (
            (order[i], result)
            for i, result in run(function, [tasks[i] for i in order], processes=processes)
        )

    monkeypatch.setattr(engine, "run", shuffled)
    convert(dataclasses.replace(options, output=str(tmp_path), processes=3))
    assert read_folder(tmp_path) == expected
