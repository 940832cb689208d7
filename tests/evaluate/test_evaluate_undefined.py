"""A metric that is no number never passes, and files that have it are JSON and readable pages."""

import json
import math
import shutil

import numpy as np
import pytest

from common import provenance
from components.register.__main__ import main as register
from trainer.tasks.of_dataset import Classification


class Undefined(Classification):
    """Task with a metric that is no number."""

    value = math.nan

    def measure(self, answers, labels):
        return {**super().measure(answers, labels), "odd": np.float32(self.value)}


def undefined(manifest):
    return Undefined(manifest.class_names)


def strict(text):
    return json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("value", "ranking", "verdict"), [(math.nan, (), "promote"), (math.inf, ("odd",), "reject")]
)
def test_undefined_metric_is_null(
    scored, make_model, evaluate_step, tmp_path, monkeypatch, value, ranking, verdict
):
    monkeypatch.setattr(Undefined, "value", value)
    monkeypatch.setattr(Undefined, "ranking", (*ranking, "accuracy"))
    model = shutil.copytree(make_model(wrong=30), tmp_path / "job/model")
    provenance.write(scored.manifest, "m", str(model), task=f"{__name__}:undefined")
    metrics = evaluate_step(tmp_path / "job", scored.path)["metrics"].metadata
    evaluation = strict((tmp_path / "evaluation").read_text())
    (part, *_) = evaluation["parts"]["class"]
    for figures in (evaluation["metrics"], evaluation["baseline"], part["metrics"]):
        assert figures["odd"] is None
    assert evaluation["decision"]["verdict"] == verdict
    assert "odd" not in metrics and "accuracy" in metrics
    assert "| - |" in (tmp_path / "summary").read_text()
    assert "<td>-</td>" in (tmp_path / "report").read_text()
    if verdict == "promote":
        evaluation["decision"]["verdict"] = "register"  # A promotion would start a server.
        (tmp_path / "evaluation").write_text(json.dumps(evaluation))
        place = ["--registry", f"{tmp_path}/registry", "--name", "m"]
        flags = ["--model-dir", str(model), "--evaluation", f"{tmp_path}/evaluation"]
        register(["add", *place, *flags])
        version = tmp_path / "registry/m/1/version.json"
        assert strict(version.read_text())["metrics"]["odd"] is None
        assert register(["list", *place]) == 0
