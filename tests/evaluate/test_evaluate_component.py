from __future__ import annotations

import json
import shutil

import pytest
from kfp import dsl

from components.evaluate import component


@pytest.fixture
def artifacts(tmp_path, scored):
    kinds = {
        "model": dsl.Model,
        "evaluation": dsl.Artifact,
        "metrics": dsl.Metrics,
        "confusion": dsl.ClassificationMetrics,
        "report": dsl.HTML,
        "summary": dsl.Markdown,
    }
    made = {name: kind(name=name, uri=str(tmp_path / name)) for name, kind in kinds.items()}
    return {"dataset": dsl.Dataset(name="dataset", uri=str(scored.path)), **made}


def test_the_step_hands_the_evaluation_on_in_every_form_that_kubeflow_shows(tmp_path, make_model, scored, artifacts):
    job = tmp_path / "job"
    shutil.copytree(make_model(wrong=5), job / "model")
    told = component.evaluate(
        job_dir=f"{job}/",
        registry=str(tmp_path / "registry"),
        name="digits",
        evaluate_args=["--min-accuracy=0.5"],
        **artifacts,
    )
    assert told == artifacts["model"].uri == str(job / "model")
    written = json.loads((tmp_path / "evaluation").read_text())
    count = len(scored.labels)
    assert artifacts["metrics"].metadata == json.loads((tmp_path / "metrics").read_text()) == written["metrics"]
    assert written["metrics"]["accuracy"] == pytest.approx((count - 5) / count)
    rows = artifacts["confusion"].metadata["confusionMatrix"]["rows"]
    assert [row["row"] for row in rows] == written["confusion"]
    assert "Confusion matrix" in (tmp_path / "report").read_text()
    assert f"| candidate | {(count - 5) / count:.4f} |" in (tmp_path / "summary").read_text()
    assert component.gate(evaluation=artifacts["evaluation"]) == "promote"
