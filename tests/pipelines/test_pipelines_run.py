"""The whole pipeline, as a person runs it."""

import contextlib
import functools
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.pipeline
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> pathlib.Path:
    """Where the runs of this module share their cache and registry."""
    return tmp_path_factory.mktemp("place")


def flags(place: pathlib.Path) -> list[object]:
    return ["--runs-dir", place / "runs", "--registry", place / "registry"]


def newest(place: pathlib.Path) -> pathlib.Path:
    return max((place / "runs").glob("*/run.json")).parent


def summary(run: pathlib.Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def left_over(place: pathlib.Path) -> list[str]:
    """Command lines of processes that have anything to do with runs in this place."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if (
                str(place) in line
                and process.pid != os.getpid()
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(line)
    return found


def gone(place: pathlib.Path, within_s: float = 60) -> bool:
    deadline = time.monotonic() + within_s
    while left_over(place) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left_over(place)


@pytest.fixture(scope="module")
def first_run(command, place) -> tuple[pathlib.Path, str]:
    """The directory and the output of the first run in `place`, with the defaults."""
    done = command("pipelines/run.py", *flags(place))
    assert done.returncode == 0, done.stdout + done.stderr
    return newest(place), done.stdout


@pytest.mark.smoke
def test_first_run_registers_the_champion(first_run):
    run, printed = first_run
    result = summary(run)
    assert result["status"] == "succeeded"
    steps = ["convert", "plan", "train", "evaluate", "gate", "register", "promote", "cleanup"]
    assert [step["name"] for step in result["steps"]] == steps
    assert result["metrics"]["accuracy"] >= 0.97
    assert json.dumps(result).count('"accuracy"') == 1
    assert "there is no champion to compare with" in result["model"].pop("why")
    assert result["model"] == {
        "name": "digits",
        "version": "1",
        "champion": "1",
        "verdict": "promote",
    }
    assert result["throughput"]["examples_per_s"] > 0
    assert all(pathlib.Path(path).exists() for path in result["paths"].values())
    assert "test accuracy" in printed and "now the champion" in printed
    assert "kfp" not in printed.lower()  # full logs go to files, not over the progress
    logs = {p.name for p in (run / "logs").iterdir()}
    assert {"pipeline.log", "convert.log", "train.log", "chief-0.log", "worker-0.log"} <= logs
    assert "chief/0 | " in (run / "logs" / "train.log").read_text()
    page = (run / "report.html").read_text()
    assert "Confusion matrix" in page and "Learning curves" in page
    assert not (run / "tmp").exists()


def test_second_run_reuses_the_dataset(command, place, first_run):
    first = summary(first_run[0])
    done = command("pipelines/run.py", *flags(place))
    assert done.returncode == 0, done.stdout + done.stderr
    second = summary(newest(place))
    status = {step["name"]: step["status"] for step in second["steps"]}
    assert status["convert"] == "succeeded"
    assert "another run has converted it" in (newest(place) / "logs" / "convert.log").read_text()
    assert second["paths"]["dataset"] == first["paths"]["dataset"]
    assert "promote" not in status
    assert second["metrics"] == first["metrics"]  # synchronous training is deterministic
    assert (second["model"]["version"], second["model"]["champion"]) == ("2", "1")
    assert "the champion stays version 1: accuracy 0.9" in done.stdout


def test_rejected_run_shows_the_threshold(command, place, first_run):
    gate = place / "gate.yaml"
    gate.write_text("thresholds: {accuracy: 1}")
    quick = (
        "--gate",
        gate,
        "--fail-on-reject",
        "--train-steps",
        "20",
        "--cluster",
        "clusters/local.yaml",
    )
    done = command("pipelines/run.py", *flags(place), *quick)
    assert done.returncode == 3, done.stdout + done.stderr
    rejected = summary(newest(place))
    assert (rejected["model"]["verdict"], rejected["model"]["version"]) == ("reject", None)
    assert (
        rejected["status"] == "succeeded"
        and "misses the threshold 1.0000" in rejected["model"]["why"]
    )
    assert f"rejected: {rejected['model']['why']}" in done.stdout
    page = (newest(place) / "report.html").read_text()
    assert f"<b>Rejected</b>: {rejected['model']['why']}" in page and "Learning curves" in page
    assert "Versions of digits" in page and page.index("champion</td>") > page.index(
        ">2</th>"
    )  # the newest first


def test_failed_step_is_named_and_resumed(command, place):
    dataset = pathlib.Path(summary(newest(place))["paths"]["dataset"])
    shard = dataset / "train-00000.tfrecord"
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))  # bit rot
    # It fails also for a parent that ignores SIGCHLD, which a process inherits.
    ignore = functools.partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
    quick = ("--cluster", "clusters/local.yaml", "--train-steps", 20)
    done = command("pipelines/run.py", *flags(place), *quick, preexec_fn=ignore)
    assert done.returncode == 2, done.stdout + done.stderr
    reason = f"step train: {shard} is not the file that the manifest lists"
    assert f"error: {reason}" in done.stderr
    assert "logs/train.log" in done.stderr
    run = newest(place)
    failed = summary(run)
    assert failed["status"] == "failed"
    assert {s["name"]: s["status"] for s in failed["steps"]}["cleanup"] == "succeeded"
    assert (run / "tmp").exists()
    assert failed["reason"].startswith(reason)
    page = (run / "report.html").read_text()
    assert f"<b>Failed</b>: {failed['reason'][:60]}" in page and f"runs.py resume {run}" in page
    assert (
        "is not the file that the manifest"
        in page.split("The last lines of train")[1].split("</pre>")[0]
    )
    assert "convert the dataset again" in failed["reason"]
    shutil.rmtree(dataset)
    assert command("pipelines/runs.py", "resume", run).returncode == 0
    assert shard.read_bytes() == good
    steps = {step["name"]: step["status"] for step in summary(run)["steps"]}
    assert (steps["convert"], steps["plan"], steps["train"]) == ("succeeded", "cached", "succeeded")


def test_resume_takes_other_evaluation_flags(command, place):
    short = ("--cluster", "clusters/local.yaml", "--train-steps", 20)
    failed = command(
        "pipelines/run.py", *flags(place), *short, "--set", "slice=colour", "--min-accuracy", 0.2
    )
    assert failed.returncode == 2 and "step plan: unknown column of slices" in failed.stderr
    run = newest(place)
    done = command("pipelines/runs.py", "resume", run, "--set", "slice=label")
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "run.json").read_text())["arguments"]["evaluate_args"] == [
        "--min-accuracy=0.2",
        "--slice=label",
    ]
    again = command("pipelines/runs.py", "resume", run, "--set", "slice=other")
    assert again.returncode == 2 and "is finished" in again.stderr


def test_deleting_run_leaves_others_whole(command, place):
    first, second, *_ = (path.parent for path in sorted((place / "runs").glob("*/summary.json")))
    deleted = command("pipelines/runs.py", "delete", first, "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert not first.exists()
    links = re.findall('<a href="([^"]+)"', (second / "report.html").read_text())
    assert len(links) >= 7 and all((second / link).exists() for link in links), links


def start(place: pathlib.Path, parent: str = "") -> tuple[subprocess.Popen[bytes], int]:
    """Starts a long run on a terminal of its own; returns the process and the terminal."""
    line = list(
        map(str, [sys.executable, "pipelines/run.py", *flags(place), "--train-steps", 100000])
    )
    if parent:
        line = [parent, "-c", f"PIPELINE_OWNER_PID=$$ {' '.join(line)}; true"]
    terminal, inner = pty.openpty()
    # Who runs tests in the background of a shell has them ignore Ctrl-C, and a child inherits that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), inner)
    process = subprocess.Popen(line, cwd=ROOT, start_new_session=True, preexec_fn=heed, **streams)
    os.close(inner)
    return process, terminal


def shown_until_training(terminal: int) -> bytes:
    """Training is shown while it goes on."""
    shown = b""
    while not re.search(rb" [1-9]\d* examples/s", shown):  # none of the first step
        shown += os.read(terminal, 65536)
    return shown


def test_ctrl_c_saves_the_training(place):
    process, terminal = start(place)
    shown = shown_until_training(terminal)
    os.kill(process.pid, signal.SIGINT)
    with contextlib.suppress(OSError):  # the terminal's end
        while part := os.read(terminal, 65536):
            shown += part
    assert process.wait(40) == 130
    assert b"interrupted" in shown
    assert gone(place), left_over(place)
    run = newest(place)
    assert summary(run)["status"] == "interrupted"
    assert f"pipelines/runs.py resume {run}".encode() in shown
    log = (run / "logs/train.log").read_text()
    step = int(re.search(r"told to stop by SIGTERM after [\d.]+ s, at step (\d+)", log)[1])
    assert step > 0 and (run / "job" / "checkpoints" / f"ckpt-{step}.index").exists()


@pytest.mark.parametrize("victim", ["run", "parent"])
def test_kill_9_leaves_no_process(place, victim):
    process, terminal = start(place, parent="/bin/sh" if victim == "parent" else "")
    shown_until_training(terminal)
    assert len(left_over(place)) > 3
    process.kill()
    process.wait()
    assert gone(place), left_over(place)
    os.close(terminal)
