"""Models that are no models, and what an evaluation says of them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from components.evaluate.gate import decide
from trainer.base.files import tree_digest


def make_job(directory: pathlib.Path, name: str) -> pathlib.Path:
    """The directory of a job with files in `model/` as TensorFlow lays them out; the name tells them apart."""
    model = directory / name / "model"
    (model / "variables").mkdir(parents=True)
    (model / "saved_model.pb").write_text(name)
    (model / "variables" / "variables.index").write_text("index")
    return directory / name


def evaluate(
    job: pathlib.Path,
    *,
    champion: dict[str, Any] | None = None,
    metric: str = "accuracy",
    least: float = 0.0,
    **figures: float,
) -> dict[str, Any]:
    """Judges the job's model by these figures, and writes `evaluation.json` beside it."""
    metrics = {"accuracy": 0.9, "loss": 0.5, "examples": 100, **figures}
    baseline = {"rule": "nothing", "accuracy": -1.0, "auc": -1.0}
    decision = decide(metrics, baseline, metric=metric, thresholds={metric: least}, champion=champion)
    evaluation = {
        "metrics": metrics,
        "metric": metric,
        "baseline": baseline,
        "model_digest": tree_digest(job / "model"),
        "dataset": "digits",
        "fingerprint": "f" * 64,
        "split": "test",
        "class_names": ["0", "1"],
        "champion": champion,
        "decision": decision,
    }
    (job / "evaluation.json").write_text(json.dumps(evaluation))
    return json.loads((job / "evaluation.json").read_text())


def scored(version: str, **metrics: float) -> dict[str, Any]:
    """A champion as an evaluation tells of it."""
    return {"version": version, "metrics": metrics, "incomparable": ""}
