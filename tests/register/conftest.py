from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from trainer.files import tree_digest

VERDICTS = {"promote": "beats", "register": "does not beat", "reject": "is below"}


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Callable[..., pathlib.Path]:
    """Makes the directory of a job with files in `model/` as TensorFlow lays them out; the name tells them apart."""

    def make(name: str = "job") -> pathlib.Path:
        model = tmp_path / name / "model"
        (model / "variables").mkdir(parents=True)
        (model / "saved_model.pb").write_text(name)
        (model / "variables" / "variables.index").write_text("index")
        return tmp_path / name

    return make


@pytest.fixture
def evaluated(job: Callable[..., pathlib.Path]) -> Callable[..., tuple[pathlib.Path, dict[str, Any]]]:
    """Makes a job and writes its `evaluation.json` beside the model; returns the job and the evaluation."""

    def make(
        name: str = "job",
        accuracy: float = 0.9,
        *,
        verdict: str = "promote",
        champion: dict[str, Any] | None = None,
        fingerprint: str = "f" * 64,
    ) -> tuple[pathlib.Path, dict[str, Any]]:
        directory = job(name)
        evaluation = {
            "metrics": {"accuracy": accuracy, "loss": 0.5, "examples": 100},
            "baseline": {"accuracy": 0.1, "loss": 2.3},
            "model_digest": tree_digest(directory / "model"),
            "dataset": "digits",
            "fingerprint": fingerprint,
            "split": "test",
            "class_names": ["0", "1"],
            "champion": champion,
            "decision": {"verdict": verdict, "reasons": [f"accuracy {VERDICTS[verdict]} something"]},
        }
        (directory / "evaluation.json").write_text(json.dumps(evaluation))
        return directory, evaluation

    return make
