"""The whole pipeline, each step in a container, gives what it gives without containers."""

import os
import signal
import sys
import time

import pytest
import trips
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


def command(folder, flags):
    """The pipeline with all its files below `folder`."""
    places = f"--runs-dir {folder}/runs --registry {folder}/registry"
    return [sys.executable, *f"{ROOT}/pipelines/run.py {places} {flags}".split()]


def trained_weights(folder, flags):
    """Runs the pipeline; returns the model's variables."""
    run(*command(folder, flags))
    (job,) = folder.glob("runs/*/job")
    return weights(job)


def test_containers_give_weights_of_processes(image, tmp_path):
    before, folder = engine_state(image), tmp_path / "docker"
    files = trips.write(tmp_path)
    table = " ".join(f"--{name}={path}" for name, path in files.items())
    in_containers = trained_weights(folder, f"{table} --runner docker --image {image}")
    nothing_more(before, image)
    assert {path.stat().st_uid for path in folder.rglob("*")} == {os.getuid()}
    assert len(in_containers) >= 4 and in_containers == trained_weights(tmp_path / "process", table)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_ended_run_leaves_no_container(image, tmp_path, end):
    before, folder = engine_state(image), tmp_path / "run"
    with open(tmp_path / "output", "wb") as output:
        flags = f"--runner docker --image {image} --train-steps 1000000"
        process = start(*command(folder, flags), stdout=output)
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
