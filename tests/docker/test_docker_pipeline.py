"""The whole pipeline, each step in a container of its own, gives what it gives without containers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from engine import docker

from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]


def engine_state(image: str) -> set[str]:
    """Identifiers of the image's containers, and of all networks."""
    containers = docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}")
    return {*containers.split(), *docker("network", "ls", "--quiet").split()}


def nothing_more(before: set[str], image: str) -> None:
    """The engine removes a container a moment after it exits."""
    wait_until(lambda: engine_state(image) <= before, 20)


def command(folder: Path, *flags: str) -> list[str]:
    """The default pipeline with all its files below `folder`."""
    places = ["--runs-dir", str(folder / "runs"), "--registry", str(folder / "registry")]
    return [sys.executable, str(ROOT / "pipelines/run.py"), *places, *flags]


def accuracy(folder: Path, *flags: str) -> float:
    """Runs the pipeline; returns the accuracy in its summary."""
    done = subprocess.run(command(folder, *flags), cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (summary,) = (folder / "runs").rglob("summary.json")
    return json.loads(summary.read_text())["metrics"]["accuracy"]


def test_the_pipeline_in_containers_equals_the_pipeline_in_processes(image, tmp_path):
    before = engine_state(image)
    in_containers = accuracy(tmp_path / "docker", "--runner", "docker", "--image", image)
    nothing_more(before, image)
    assert in_containers >= 0.97
    assert in_containers == pytest.approx(accuracy(tmp_path / "process"), abs=0.01)


def test_a_run_that_is_stopped_while_it_trains_leaves_no_container(image, tmp_path):
    before = engine_state(image)
    with open(tmp_path / "output", "wb") as output:
        run = subprocess.Popen(
            command(tmp_path, "--runner", "docker", "--image", image), cwd=ROOT, stdout=output, stderr=output
        )
    wait_until(lambda: run.poll() is not None or list(tmp_path.rglob("journal-*.jsonl")), 120)
    assert run.poll() is None, (tmp_path / "output").read_text()
    assert engine_state(image) - before
    run.terminate()
    assert run.wait(60) != 0
    nothing_more(before, image)
