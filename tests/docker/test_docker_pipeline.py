"""The whole pipeline, each step in a container, gives what it gives without containers."""

import json
import os
import signal
import sys
import time

import pytest
from engine import docker

from tests.programs import run, start, wait_until
from tests.root import ROOT
from tools.prove_gpu.__main__ import weights

pytestmark = pytest.mark.docker


def engine_state(image):
    """Identifiers of the image's containers, and of all networks."""
    containers = docker(f"ps --all --quiet --filter ancestor={image}")
    return {*containers.split(), *docker("network ls --quiet").split()}


def nothing_more(before, image):
    """The engine removes a container a moment after it exits."""
    wait_until(lambda: engine_state(image) <= before, 300)


def command(folder, flags=""):
    """The default pipeline with all its files below `folder`."""
    places = f"--runs-dir {folder}/runs --registry {folder}/registry"
    return [sys.executable, *f"{ROOT}/pipelines/run.py {places} {flags}".split()]


def in_containers(folder, image, flags=""):
    """The same in containers."""
    return command(folder, f"--runner docker --image {image} {flags}")


def trained_weights(folder, words):
    """Runs the pipeline; returns the model's variables."""
    run(*words)
    (summary,) = (folder / "runs").rglob("summary.json")
    assert json.loads(summary.read_text())["metrics"]["accuracy"] >= 0.97
    return weights(summary.parent / "job")


def test_containers_give_weights_of_processes(image, tmp_path):
    before, folder = engine_state(image), tmp_path / "docker"
    there = trained_weights(folder, in_containers(folder, image))
    nothing_more(before, image)
    assert {path.stat().st_uid for path in folder.rglob("*")} == {os.getuid()}
    folder = tmp_path / "process"
    assert len(there) >= 4 and there == trained_weights(folder, command(folder))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_ended_run_leaves_no_container(image, tmp_path, end):
    before, folder = engine_state(image), tmp_path / "run"
    with open(tmp_path / "output", "wb") as output:
        words = in_containers(folder, image, "--train-steps 1000000")
        process = start(*words, stdout=output)
    wait_until(
        lambda: process.poll() is not None or list(folder.glob("runs/*/job/journal-*.jsonl")), 300
    )
    assert process.poll() is None, (tmp_path / "output").read_text()
    assert engine_state(image) - before
    process.send_signal(end)
    assert process.wait(60) != 0
    nothing_more(before, image)
    time.sleep(5)  # nor does anything start another one
    nothing_more(before, image)
