"""The program that is for GPUs, where there are none."""

import json
import sys

import pytest

from tests.errors import user_error
from tools.prove_gpu import __main__ as program

ABOUT = {"tensorflow": "2.21.0", "code": "abc123", "driver": "550.1"}


@pytest.fixture
def prove(monkeypatch, tmp_path):
    """Runs it with flags; returns its exit code and what it has written, or one job's status."""

    def run(flags):
        output = tmp_path / "out.json"
        monkeypatch.setattr(sys, "argv", ["prove", "--output", str(output), *flags.split()])
        code = program.main()
        return code, json.loads(output.read_text())["found"]

    return run


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Stands in for a machine with so many GPUs, whose jobs leave the given files."""

    def have(gpus, *, devices="Tesla T4", step=400):
        def train(*_):
            journal = {"event": "machine", "devices": devices}
            (tmp_path / "journal-chief-0-0.jsonl").write_text(json.dumps(journal))
            done = {"step": step, "accuracy": 1.0, "examples_per_s": 12_345.6}
            (tmp_path / "DONE.json").write_text(json.dumps(done))
            return tmp_path

        about = {**ABOUT, "gpus": [{"device_name": "Tesla T4"}] * gpus}
        monkeypatch.setattr(program, "machine", lambda: about)
        monkeypatch.setattr(program.Prover, "train", train)

    return have


def test_machine_without_gpus_is_refused(prove, trained):
    trained(0)
    with user_error("TensorFlow sees no GPU here"):
        prove("--data-dir d")


@pytest.mark.parametrize(
    ("gpus", "name", "wrong", "status"),
    [
        (0, "mirrored", {}, "ran on a processor"),
        (0, "mirrored-nccl", {}, "not shown"),
        (1, "mirrored", {}, "not shown"),
        (2, "mirrored", {}, "proven"),
        (2, "mirrored", {"devices": "a processor, 8 cores"}, "FAILED"),
        (2, "mirrored", {"step": 399}, "FAILED"),
    ],
)
def test_job_needs_its_gpus(prove, trained, gpus, name, wrong, status):
    trained(gpus, **wrong)
    code, results = prove(f"--data-dir d --allow-cpu --only {name}")
    assert (code, results[name]["status"]) == (status == "FAILED", status)


@pytest.mark.cluster
def test_job_runs_on_processor(prove):
    code, results = prove("--allow-cpu --only one --steps 100")
    assert (code, results["one"]["status"]) == (0, "ran on a processor")
    assert results["one"]["examples_per_s"] > 0


@pytest.mark.slow
def test_every_job_runs_on_processors(prove):
    code, results = prove("--allow-cpu --steps 150")
    assert code == 0 and {*results} == {*program.JOBS}
    not_shown = [name for name, each in results.items() if each["status"] == "not shown"]
    assert not_shown == ["mirrored-nccl", "pair-nccl"]
