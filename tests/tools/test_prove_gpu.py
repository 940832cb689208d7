"""The program that is for GPUs, where there are none."""

import json
import sys

import pytest

from tools.prove_gpu import __main__ as program


@pytest.fixture
def prove(monkeypatch, tmp_path):
    """Runs it with flags on processors; returns its exit code and the results by job."""

    def run(flags):
        output = tmp_path / "out.json"
        words = ["prove", "--allow-cpu", "--output", str(output), *flags.split()]
        monkeypatch.setattr(sys, "argv", words)
        code = program.main()
        return code, json.loads(output.read_text())["found"]

    return run


@pytest.mark.cluster
def test_job_runs_on_processor(prove):
    code, results = prove("--only one --steps 100")
    assert (code, results["one"]["status"]) == (0, "ran on a processor")


@pytest.mark.slow
def test_every_job_runs_on_processors(prove):
    code, results = prove("--steps 150")
    assert code == 0 and {*results} == {*program.JOBS}
    not_shown = [name for name, each in results.items() if each["status"] == "not shown"]
    assert not_shown == ["mirrored-nccl", "pair-nccl"]
