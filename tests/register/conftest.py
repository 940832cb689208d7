import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from components.evaluate.gate import decide
from trainer.base.files import tree_digest
from trainer.nn.tasks.classification import Classification


@pytest.fixture
def job(tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    """Makes the directory of a job with files in `model/` as TensorFlow lays them out; the name tells them apart."""

    def make(name: str = "job") -> pathlib.Path:
        model = tmp_path / name / "model"
        (model / "variables").mkdir(parents=True)
        (model / "saved_model.pb").write_text(name)
        (model / "variables" / "variables.index").write_text("index")
        return model.parent

    return make


@pytest.fixture
def evaluated(job: Callable[[str], pathlib.Path]) -> Callable[..., tuple[pathlib.Path, dict[str, Any]]]:
    """Makes a job and judges its model by these figures; returns the job and the evaluation, written beside the model."""

    def make(
        name: str = "job",
        accuracy: float = 0.9,
        *,
        champion: dict[str, Any] | None = None,
        metric: str = "accuracy",
        least: float = 0.0,
        **figures: float,
    ) -> tuple[pathlib.Path, dict[str, Any]]:
        directory = job(name)
        metrics = {"accuracy": accuracy, "loss": 0.5, "examples": 100, **figures}
        baseline = {"rule": "nothing", "accuracy": -1.0, "auc": -1.0}
        evaluation = {
            "metrics": metrics,
            "metric": metric,
            "baseline": baseline,
            "model_digest": tree_digest(directory / "model"),
            "dataset": "digits",
            "fingerprint": "f" * 64,
            "split": "test",
            "class_names": ["0", "1"],
            "champion": champion,
            "decision": decide(
                metrics,
                baseline,
                metric=metric,
                better=Classification(("no", "yes")).better,
                thresholds={metric: least},
                champion=champion,
            ),
        }
        (directory / "evaluation.json").write_text(json.dumps(evaluation))
        return directory, json.loads((directory / "evaluation.json").read_text())

    return make
