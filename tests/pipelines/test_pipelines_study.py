"""A study of real jobs, killed on the way."""

import csv
import json
import pathlib
import subprocess
import sys
import time

import psutil
import pytest

ROOT = pathlib.Path(__file__).parents[2]
STUDY = """asks: Shall two replicas train?
convert: --dataset digits
train: --train-steps 400 --threads 1 --checkpoint-num-steps 40 --batch-size 64
cells: [{name: one, train: --deterministic}, {name: two, cluster: clusters/local-sync.yaml}]
"""


def alive(place: pathlib.Path) -> bool:
    return any(str(place) in " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))


@pytest.mark.pipeline
def test_a_study_that_is_killed_in_each_cell_finishes_and_its_figures_are_those_of_the_journals(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    out, limit = tmp_path / "out", time.monotonic() + 240
    line = [sys.executable, "pipelines/study.py", tmp_path / "study.yaml", "--output", out, "--repeats", "1"]
    for cell in ("one", "two"):
        study = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.DEVNULL)
        while not list((out / f"{cell}-0" / "checkpoints").glob("*.index")):
            assert time.monotonic() < limit and study.poll() is None
            time.sleep(0.02)
        study.kill()
        study.wait()
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
        assert [event["step"] % 40 for event in events if event["event"] == "resume"] == [0]
        assert sum(event["event"] == "checkpoint" for event in events) == int(run["checkpoints"])
        record = json.loads((job / "DONE.json").read_text())
        assert (record["step"], record["examples_per_s"]) == (400, float(run["examples_per_s"]))
        evaluation = json.loads((job / "evaluation" / "evaluation.json").read_text())
        assert evaluation["metrics"]["accuracy"] == pytest.approx(float(run["score"]), abs=1e-4)
    assert replicas == 2 and "| two | 1 | 2 |" in done.stdout
