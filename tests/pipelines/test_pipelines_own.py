"""The model of docs/MODELS.md goes through the pipeline."""

import json
import shlex

import pytest

from tests.programs import run_python
from tests.root import blocks


@pytest.mark.pipeline
def test_model_of_page_becomes_version(tmp_path):
    model, prepare, _, task, *_ = blocks("MODELS.md")
    training, pipeline, *_ = blocks("MODELS.md", "sh")
    path, python, script, *flags = shlex.split(pipeline)
    assert [path, python] == ["PYTHONPATH=.", ".venv/bin/python"]
    assert shlex.split(training)[-len(flags) + 3 :] == flags[3:]  # The same training.

    (tmp_path / "mine.py").write_text(f"{model}\n\n{prepare}\n\n{task}")
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    line = [script, *where, "--threshold", "top_3=0.5", *flags]
    printed = run_python(*line, env={"PYTHONPATH": str(tmp_path)})
    assert "version 1 of 'mine', now the champion" in printed
    version = json.loads((tmp_path / "registry" / "mine" / "1" / "version.json").read_text())
    assert 1 > version["metrics"]["top_3"] > version["metrics"]["accuracy"] > 0.6
