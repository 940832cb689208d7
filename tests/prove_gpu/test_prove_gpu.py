"""The program that is for GPUs, where there are none."""

import json
import sys

import pytest

from common.errors import UserError
from tests.prove_gpu import __main__ as program

T4 = {"device_name": "Tesla T4"}
ABOUT = {"tensorflow": "2.21.0", "code": "abc123", "driver": "550.1"}


@pytest.fixture
def prove(monkeypatch, tmp_path):
    """Runs it with flags; returns its exit code and what it has written."""

    def run(*flags: str) -> tuple[int, dict]:
        monkeypatch.setattr(sys, "argv", ["prove", "--output", str(tmp_path / "out.json"), *flags])
        code = program.main()
        return code, json.loads((tmp_path / "out.json").read_text())["found"]

    return run


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Has a machine with so many GPUs, whose jobs leave what is given."""

    def have(gpus: int, *, devices: str = "Tesla T4", step: int = 400) -> None:
        def train(self, name: str, job: program.Job, steps: int, *more: str):
            (tmp_path / "journal-chief-0-0.jsonl").write_text(
                json.dumps({"event": "machine", "devices": devices})
            )
            done = {"step": step, "accuracy": 1.0, "examples_per_s": 12_345.6}
            (tmp_path / "DONE.json").write_text(json.dumps(done))
            return tmp_path

        monkeypatch.setattr(program, "machine", lambda: {**ABOUT, "gpus": [T4] * gpus})
        monkeypatch.setattr(program.Prover, "train", train)

    return have


def test_a_machine_without_gpus_proves_nothing(prove, trained):
    trained(0)
    with pytest.raises(UserError, match="TensorFlow sees no GPU here"):
        prove("--data-dir", "d")
    code, found = prove("--data-dir", "d", "--allow-cpu", "--only", *program.JOBS)
    assert code == 0
    assert {each["status"] for each in found.values()} == {"ran on a processor", "not shown"}


def test_what_needs_more_gpus_than_there_are_is_not_shown(prove, trained):
    trained(1)
    code, found = prove("--data-dir", "d", "--only", "one", "mirrored-nccl")
    assert (code, found["one"]["status"], found["mirrored-nccl"]["status"]) == (
        0,
        "proven",
        "not shown",
    )
    trained(2)
    assert (
        prove("--data-dir", "d", "--only", "mirrored-nccl")[1]["mirrored-nccl"]["status"]
        == "proven"
    )


@pytest.mark.parametrize("wrong", [{"devices": "a processor, 8 cores"}, {"step": 399}])
def test_a_job_that_did_not_use_the_gpu_or_ended_early_fails(prove, trained, wrong):
    trained(2, **wrong)
    code, found = prove("--data-dir", "d", "--only", "mirrored")
    assert (code, found["mirrored"]["status"]) == (1, "FAILED")


@pytest.mark.cluster
def test_a_real_job_runs_on_a_processor_and_one_that_fails_is_told_with_its_last_lines(prove):
    code, found = prove("--allow-cpu", "--only", "one", "--steps", "100")
    assert (code, found["one"]["status"]) == (0, "ran on a processor") and found["one"][
        "examples_per_s"
    ] > 0
    code, found = prove("--allow-cpu", "--only", "one", "--data-dir", "nowhere")
    assert code == 1 and "nowhere" in found["one"]["why"]


@pytest.mark.slow
def test_every_job_that_needs_no_gpu_runs_on_a_processor(prove):
    code, found = prove("--allow-cpu", "--steps", "150")
    assert code == 0 and {*found} == {*program.JOBS, program.RESUME}
    assert [name for name, each in found.items() if each["status"] == "not shown"] == [
        "mirrored-nccl",
        "pair-nccl",
    ]
