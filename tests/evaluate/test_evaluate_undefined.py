"""A task of the user's whose metric is no number here: it passes nowhere, and whoever reads of it can."""

import json
import math
import shutil
import typing

import numpy as np
import pytest
from kfp import dsl

from common import provenance
from common.manifest import Manifest
from components.evaluate import component
from components.register.__main__ import main as register
from trainer.tasks.of_dataset import Classification


class Odd(Classification):
    """Has a metric that is none."""

    value = math.nan

    def measure(self, answers, labels):
        return {**super().measure(answers, labels), "odd": np.float32(self.value)}


def odd(manifest: Manifest) -> Odd:
    return Odd(manifest.class_names)


def strict(text: str) -> dict:
    return json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(("value", "ranking", "verdict"), [(math.nan, (), "promote"), (math.inf, ("odd",), "reject")])
def test_undefined_metric_is_null_and_dash(scored, make_model, tmp_path, monkeypatch, value, ranking, verdict):
    monkeypatch.setattr(Odd, "value", value)
    monkeypatch.setattr(Odd, "ranking", (*ranking, "accuracy"))
    job, registry = tmp_path / "job", ["--registry", str(tmp_path / "registry"), "--name", "m"]
    model = shutil.copytree(make_model(wrong=30), job / "model")
    provenance.write(scored.manifest, "m", str(model), task=f"{__name__}:odd")
    kinds = {name: kind for name, kind in component.evaluate.__annotations__.items() if hasattr(kind, "__metadata__")}
    artifacts = {name: typing.get_args(kind)[0](name=name, uri=str(tmp_path / name)) for name, kind in kinds.items()}
    artifacts["dataset"] = dsl.Dataset(name="dataset", uri=str(scored.path))
    component.evaluate(job_dir=str(job), registry="", name="", evaluate_args=[], **artifacts)
    told = strict((tmp_path / "evaluation").read_text())
    assert told["metrics"]["odd"] is told["baseline"]["odd"] is told["parts"]["class"][0]["metrics"]["odd"] is None
    assert told["decision"]["verdict"] == verdict
    assert "odd" not in artifacts["metrics"].metadata and "accuracy" in artifacts["metrics"].metadata
    assert "| - |" in (tmp_path / "summary").read_text() and "<td>-</td>" in (tmp_path / "report").read_text()
    if verdict == "reject":
        return
    made = ["--model-dir", str(model), "--evaluation", str(tmp_path / "evaluation")]
    assert register(["add", *registry, *made]) == 0
    version = tmp_path / "registry" / "m" / "1"
    assert strict((version / "version.json").read_text())["metrics"]["odd"] is None
    for verb in ("list", "show"):
        assert register([verb, *registry]) == 0
