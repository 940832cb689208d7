"""Sources of a user's own, and the model of docs/MODELS.md, go through the pipeline."""

import json
import shlex

import pytest

from pipelines.local import runner
from pipelines.local.record import RunRecord
from tests.programs import run_python
from tests.root import blocks


def test_container_sees_only_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "check_engine", lambda _: True)
    runs, registry, *sources = (str(tmp_path / name) for name in ("runs", "r", "a.csv", "b.csv"))
    facts = {"id": "r", "runner": "docker", "image": "i", "dataset": "csv", "cluster": "c.yaml"}
    arguments = {"registry": registry, "run_dir": f"{runs}/r"}
    record = RunRecord(**facts, sources=sources, arguments=arguments)
    options = runner._runner(record).container_run_args
    assert (options["user"], options["read_only"], options["cap_drop"]) == ("0:0", True, ["ALL"])
    assert options["security_opt"] == ["no-new-privileges"]
    mounts = [(mount["Source"], mount["ReadOnly"]) for mount in options["mounts"]]
    assert mounts == [(runs, False), (registry, False), *((source, True) for source in sources)]


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
