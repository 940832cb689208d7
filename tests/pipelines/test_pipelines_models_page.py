"""The code of docs/MODELS.md, and what stands there of it."""

import json
import pathlib
import re
import shlex

import pytest

DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs" / "MODELS.md").read_text()

pytestmark = pytest.mark.pipeline


def test_the_model_of_the_page_becomes_a_registered_version_by_the_command_of_the_page(
    command, tmp_path
):
    model, prepare, _, task, *_ = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    training, pipeline, *_ = re.findall(r"```sh\n(.*?)\n```", DOCUMENT)
    path, python, script, *flags = shlex.split(pipeline)
    assert [path, python] == ["PYTHONPATH=.", "python"]
    assert shlex.split(training)[-len(flags) + 3 :] == flags[3:]  # the same training

    (tmp_path / "mine.py").write_text(f"{model}\n\n{prepare}\n\n{task}")
    flags[:0] = [
        "--runs-dir",
        tmp_path / "runs",
        "--registry",
        tmp_path / "registry",
        "--threshold",
        "top_3=0.5",
    ]
    run = command(script, *flags, PYTHONPATH=str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "version 1 of 'mine', now the champion" in run.stdout
    version = json.loads((tmp_path / "registry" / "mine" / "1" / "version.json").read_text())
    assert 1 > version["metrics"]["top_3"] > version["metrics"]["accuracy"] > 0.6
    (evaluation,) = tmp_path.glob("runs/*/evaluation.json")
    assert json.loads(evaluation.read_text())["metric"] == "top_3"
