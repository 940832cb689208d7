"""The code of docs/MODELS.md, and what stands there of it: a real job."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from trainer_jobs import ROOT

DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs" / "MODELS.md").read_text()

pytestmark = pytest.mark.cluster


def test_the_model_of_the_page_trains_by_the_command_of_the_page(digits, job, tmp_path, monkeypatch):
    model, prepare, task, _ = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    (command,) = re.findall(r"```sh\npython -m trainer.task (.*?)\n```", DOCUMENT)
    flags = shlex.split(command)
    assert flags[:4] == ["--data-dir", "data/digits", "--job-dir", "jobs/mine"]
    (tmp_path / "mine.py").write_text(f"{model}\n\n{prepare}\n\n{task}")
    monkeypatch.syspath_prepend(str(tmp_path))
    output = job.run("chief", flags=flags[4:])
    assert "step 200/200" in output
    scored = [e["accuracy"] for e in job.events() if e["event"] == "evaluation"]
    assert scored[-1] > 0.6
    evaluated = tmp_path / "evaluation"
    words = [
        "--model-dir",
        job.directory / "model",
        "--data-dir",
        digits,
        "--output",
        evaluated,
        "--threshold",
        "top_3=0.5",
    ]
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-m", "components.evaluate", *words], env=environ, cwd=tmp_path, check=True)
    found = json.loads((evaluated / "evaluation.json").read_text())
    assert found["metric"] == "top_3" and 1 > found["metrics"]["top_3"] > found["metrics"]["accuracy"] > 0.6
