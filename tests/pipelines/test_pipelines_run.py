"""The whole pipeline, as a person runs it."""

import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from tests.programs import run_python
from tests.root import ROOT
from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.pipeline
QUICK = ("--cluster", "clusters/local.yaml", "--train-steps", 20)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Returns the place where the runs of this module share their cache and registry."""
    return tmp_path_factory.mktemp("place")


def flags(place):
    return ["--runs-dir", place / "runs", "--registry", place / "registry"]


def newest(place):
    return max((place / "runs").glob("*/run.json")).parent


def summary(run):
    return json.loads((run / "summary.json").read_text())


def steps(run):
    return {step["name"]: step["status"] for step in summary(run)["steps"]}


def left_over(place):
    """Returns command lines of processes that have anything to do with runs in this place."""
    processes = psutil.process_iter(["cmdline"])
    lines = [" ".join(process.info["cmdline"] or ()) for process in processes]
    return [line for line in lines if str(place) in line]


@pytest.fixture(scope="module")
def first_run(place):
    """The directory and the output of the first run in `place`, with the defaults."""
    printed = run_python("pipelines/run.py", *flags(place))
    return newest(place), printed


@pytest.mark.smoke
def test_first_run_registers_champion(first_run):
    run, printed = first_run
    result = summary(run)
    order = ["convert", "plan", "train", "evaluate", "gate", "register", "promote", "cleanup"]
    assert list(steps(run)) == order
    assert result["metrics"]["accuracy"] >= 0.97
    assert "there is no champion to compare with" in result["model"].pop("why")
    version = {"version": "1", "champion": "1", "verdict": "promote"}
    assert result["model"] == {"name": "digits", **version}
    assert all(pathlib.Path(path).exists() for path in result["paths"].values())
    assert "test accuracy" in printed and "now the champion" in printed
    assert "kfp" not in printed.lower()  # Full logs go to files, not over the progress.
    logs = {path.name for path in (run / "logs").iterdir()}
    assert {"pipeline.log", "convert.log", "train.log", "chief-0.log", "worker-0.log"} <= logs
    page = (run / "report.html").read_text()
    assert "Confusion matrix" in page and "Learning curves" in page
    assert not (run / "tmp").exists()


def test_rejected_run_shows_threshold(place, first_run):
    gate = place / "gate.yaml"
    gate.write_text("thresholds: {accuracy: 1}")
    reject = ("--gate", gate, "--fail-on-reject")
    printed = run_python("pipelines/run.py", *flags(place), *reject, *QUICK, code=3)
    rejected = summary(newest(place))
    assert rejected["paths"]["dataset"] == summary(first_run[0])["paths"]["dataset"]
    assert "converted already" in (newest(place) / "logs" / "convert.log").read_text()
    model = rejected["model"]
    assert (model["verdict"], model["version"]) == ("reject", None)
    assert "misses the threshold 1.0000" in model["why"]
    assert f"rejected: {model['why']}" in printed
    assert f"<b>Rejected</b>: {model['why']}" in (newest(place) / "report.html").read_text()


def test_failed_step_is_named_and_resumed(place):
    dataset = pathlib.Path(summary(newest(place))["paths"]["dataset"])
    shard = dataset / "train-00000.tfrecord"
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))  # Bit rot.
    printed = run_python("pipelines/run.py", *flags(place), *QUICK, code=2)
    reason = f"step train: {shard} is not the file that the manifest lists"
    run = newest(place)
    assert f"error: {reason}" in printed and f"runs.py resume {run}" in printed
    assert summary(run)["status"] == "failed" and steps(run)["cleanup"] == "succeeded"
    page = (run / "report.html").read_text()
    assert "is not the file that the manifest" in page.partition("The last lines of train")[2]
    shutil.rmtree(dataset)
    run_python("pipelines/runs.py", "resume", run)
    assert shard.read_bytes() == good
    assert [steps(run)[name] for name in ("convert", "plan")] == ["succeeded", "cached"]


def test_resume_takes_other_evaluation_flags(place):
    own = ("--set", "slice=colour", "--min-accuracy", 0.2)
    printed = run_python("pipelines/run.py", *flags(place), *QUICK, *own, code=2)
    assert "step plan: unknown column of slices" in printed
    run = newest(place)
    run_python("pipelines/runs.py", "resume", run, "--set", "slice=label")
    arguments = json.loads((run / "run.json").read_text())["arguments"]
    assert arguments["evaluate_args"] == ["--min-accuracy=0.2", "--slice=label"]
    again = run_python("pipelines/runs.py", "resume", run, "--set", "slice=other", code=2)
    assert "is finished" in again


def start(place, parent=""):
    """Starts a long run on a terminal, until it trains; returns both and what is shown by then."""
    words = [sys.executable, "pipelines/run.py", *flags(place), "--train-steps", 100_000]
    line = list(map(str, words))
    if parent:
        line = [parent, "-c", f"PIPELINE_OWNER_PID=$$ {' '.join(line)}; true"]
    terminal, inner = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
    process = subprocess.Popen(line, cwd=ROOT, start_new_session=True, **streams)
    os.close(inner)
    shown = b""
    while not re.search(rb" [1-9]\d* examples/s", shown):  # None of the first step.
        shown += os.read(terminal, 65536)
    return process, terminal, shown


def test_ctrl_c_saves_training(place):
    process, terminal, shown = start(place)
    os.kill(process.pid, signal.SIGINT)
    with contextlib.suppress(OSError):  # The terminal's end.
        while part := os.read(terminal, 65536):
            shown += part
    assert process.wait(40) == 130
    wait_until(lambda: not left_over(place), 60)
    run = newest(place)
    assert summary(run)["status"] == "interrupted"
    assert f"pipelines/runs.py resume {run}".encode() in shown
    log = (run / "logs/train.log").read_text()
    step = int(re.search(r"told to stop by SIGTERM after [\d.]+ s, at step (\d+)", log)[1])
    assert step > 0 and (run / "job" / "checkpoints" / f"ckpt-{step}.index").exists()


@pytest.mark.parametrize("victim", ["run", "parent"])
def test_kill_9_leaves_no_process(place, victim):
    process, terminal, _ = start(place, parent="/bin/sh" if victim == "parent" else "")
    assert len(left_over(place)) > 3
    process.kill()
    process.wait()
    wait_until(lambda: not left_over(place), 60)
    os.close(terminal)
