from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from evaluations import evaluate, make_job


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """`make_job` of this test."""
    return lambda name="job": make_job(tmp_path, name)


@pytest.fixture
def evaluated(job: Callable[[str], pathlib.Path]) -> Callable[..., tuple[pathlib.Path, dict[str, Any]]]:
    """Makes a job and evaluates it; returns the job and the evaluation."""

    def make(name: str = "job", accuracy: float = 0.9, **more: Any) -> tuple[pathlib.Path, dict[str, Any]]:
        directory = job(name)
        return directory, evaluate(directory, accuracy=accuracy, **more)

    return make
