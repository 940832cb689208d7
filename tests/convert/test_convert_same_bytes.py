"""Processes and the order of tasks decide how fast a conversion is, and no byte of it."""

import dataclasses
import random

import pytest
from dataset_files import read_folder

from components.convert import engine
from components.convert.convert import convert


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
