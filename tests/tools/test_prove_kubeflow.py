"""The program that runs the compiled spec on Kubeflow Pipelines' own programs, without these."""

import sys

import pytest

from common.errors import UserError
from pipelines.training import LOCAL_STEPS
from tools.prove_kubeflow import __main__ as program


def test_missing_programs_are_named(monkeypatch, tmp_path):
    (tmp_path / "driver").touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", ["prove", str(tmp_path)])
    with pytest.raises(
        UserError, match=r"argoexec, compile, launcher-v2, workflow-controller miss"
    ):
        program.main()


class Server:
    """Stands in for a server whose runs all end well and train without JobSets."""

    def run(self, *_):
        return "Succeeded", {step.__name__: "Succeeded" for step in LOCAL_STEPS}

    def jobsets(self):
        return {}


def test_wrong_ends_are_named(tmp_path):
    mistakes = program.prove(Server(), tmp_path / "spec.yaml", str(tmp_path))
    assert "promoted: JobSet is none, not Completed" in mistakes
    assert "registered: cleanup is None, not Succeeded" in mistakes
    assert "failed: train is Succeeded, not Failed" in mistakes
