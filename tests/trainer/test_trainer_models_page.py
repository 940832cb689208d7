"""The code of docs/MODELS.md, and what stands there of it: a real job."""

import pathlib
import re
import shlex

import pytest

DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs" / "MODELS.md").read_text()

pytestmark = pytest.mark.cluster


def test_the_model_of_the_page_trains_by_the_command_of_the_page(digits, job, tmp_path, monkeypatch):
    model, prepare = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    (command,) = re.findall(r"```sh\npython -m trainer.task (.*?)\n```", DOCUMENT)
    flags = shlex.split(command)
    assert flags[:4] == ["--data-dir", "data/digits", "--job-dir", "jobs/mine"]
    (tmp_path / "mine.py").write_text(f"{model}\n\n{prepare}")
    monkeypatch.syspath_prepend(str(tmp_path))
    output = job.run("chief", flags=flags[4:])
    assert "step 200/200" in output
    scored = [e["accuracy"] for e in job.events() if e["event"] == "evaluation"]
    assert scored[-1] > 0.6
    assert (job.directory / "model" / "saved_model.pb").exists()
