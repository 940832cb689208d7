"""The code of docs/MODELS.md, and what is written there of it."""

import json
import re
import shlex

import pytest

from tests.root import ROOT

DOCUMENT = (ROOT / "docs" / "MODELS.md").read_text()


@pytest.mark.pipeline
def test_model_of_page_becomes_version(command, tmp_path):
    model, prepare, _, task, *_ = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    training, pipeline, *_ = re.findall(r"```sh\n(.*?)\n```", DOCUMENT)
    path, python, script, *flags = shlex.split(pipeline)
    assert [path, python] == ["PYTHONPATH=.", ".venv/bin/python"]
    assert shlex.split(training)[-len(flags) + 3 :] == flags[3:]  # The same training.

    (tmp_path / "mine.py").write_text(f"{model}\n\n{prepare}\n\n{task}")
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    done = command(script, *where, "--threshold", "top_3=0.5", *flags, PYTHONPATH=str(tmp_path))
    assert "version 1 of 'mine', now the champion" in done.stdout
    version = json.loads((tmp_path / "registry" / "mine" / "1" / "version.json").read_text())
    assert 1 > version["metrics"]["top_3"] > version["metrics"]["accuracy"] > 0.6
