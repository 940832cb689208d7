"""A study of real jobs, killed and stopped on the way."""

import csv
import json
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pipelines import study

ROOT = pathlib.Path(__file__).parents[2]
STUDY = """asks: Shall two replicas train?
convert: --dataset digits
train: --train-steps 1200 --threads 1 --checkpoint-num-steps 40 --batch-size 64
cells: [{name: one, train: --deterministic}, {name: two, cluster: clusters/local-sync.yaml}]
"""


def alive(place: pathlib.Path) -> bool:
    return any(str(place) in " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))


@pytest.mark.pipeline
def test_a_study_that_is_killed_and_told_to_stop_finishes_and_its_figures_are_those_of_the_journals(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    out, limit = tmp_path / "out", time.monotonic() + 240
    line = [sys.executable, "pipelines/study.py", tmp_path / "study.yaml", "--output", out, "--repeats", "1"]
    for cell, number in (("one", signal.SIGKILL), ("two", signal.SIGTERM)):
        running = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.DEVNULL)
        while not list((out / f"{cell}-0" / "checkpoints").glob("*.index")):
            assert time.monotonic() < limit and running.poll() is None
            time.sleep(0.02)
        running.send_signal(number)
        assert running.wait() == {signal.SIGKILL: -9, signal.SIGTERM: 143}[number]
        while alive(out):
            assert time.monotonic() < limit
            time.sleep(0.05)
    finished = {path: path.stat().st_mtime_ns for path in (out / "one-0").rglob("*") if path.is_file()}
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    for replicas, run in enumerate(csv.DictReader((out / "study.csv").read_text().splitlines()), 1):
        job = out / run["job_dir"]
        journals = [path.read_text().splitlines() for path in sorted(job.glob("journal-chief-0-*.jsonl"))]
        events = [json.loads(text) for lines in journals for text in lines]
        assert len(journals) == 2 and int(run["restarts"]) == int(run["replicas"]) == replicas
        steps = {
            name: [e["step"] for e in events if e["event"] == name] for name in ("resume", "preempted", "checkpoint")
        }
        assert steps["resume"] == (steps["preempted"] or [steps["resume"][0] // 40 * 40])
        assert bool(steps["preempted"]) == (run["cell"] == "two") and len(steps["checkpoint"]) == int(
            run["checkpoints"]
        )
        record = json.loads((job / "DONE.json").read_text())
        assert (record["step"], record["examples_per_s"]) == (1200, float(run["examples_per_s"]))
        evaluation = json.loads((job / "evaluation" / "evaluation.json").read_text())
        assert evaluation["metrics"]["accuracy"] == pytest.approx(float(run["score"]), abs=1e-4)
    assert replicas == 2 and "| two | 1 | 2 |" in done.stdout


@pytest.mark.parametrize(
    ("place", "message"),
    [("gs://bucket/study", "is not a path"), ("/proc/study", "cannot write --output /proc/study: No such file")],
)
def test_a_place_that_cannot_be_written_is_told(refused, tmp_path, place, message):
    (tmp_path / "study.yaml").write_text(STUDY)
    assert message in refused(study.main, tmp_path / "study.yaml", "--output", place)


def test_a_source_that_cannot_be_read_does_not_stay_that_of_the_study(refused, tmp_path, monkeypatch):
    (tmp_path / "study.yaml").write_text(STUDY)
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(study, "_run", lambda *_: 0)
    given = [tmp_path / "study.yaml", "--output", tmp_path / "out"]
    assert "dataset 'digits' is built in" in refused(study.main, *given, "--source", "elsewhere")
    assert study.main([*map(str, given)]) == 0
    assert "results of another convert" in refused(study.main, *given, "--source", "elsewhere")


def test_without_a_test_split_nothing_is_trained(refused, tmp_path, monkeypatch):
    (tmp_path / "study.yaml").write_text(STUDY.replace("digits", "digits --test-fraction 0"))
    monkeypatch.chdir(ROOT)
    told = refused(study.main, tmp_path / "study.yaml", "--output", tmp_path / "out")
    assert "has no examples in split 'test'" in told and not (tmp_path / "out" / "one-0").exists()


def test_a_job_that_fails_ends_the_study_with_its_code_and_last_words(tmp_path, monkeypatch, capsys):
    (tmp_path / "study.yaml").write_text(STUDY)
    monkeypatch.chdir(ROOT)
    asked = [str(tmp_path / "study.yaml"), "--output", str(tmp_path / "out"), "--backend", "process"]
    assert study.main([*asked, "--", "--memory-gb", "1"]) == 2
    told = capsys.readouterr().err
    assert "one-0: train ended with exit code 2" in told and "--memory-gb is for --backend docker" in told
