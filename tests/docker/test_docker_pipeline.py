"""The whole pipeline, each step in a container of its own, gives what it gives without containers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf
from engine import docker

from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]
SOMEBODY = 12345


def engine_state(image: str) -> set[str]:
    """Identifiers of the image's containers, and of all networks."""
    containers = docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}")
    return {*containers.split(), *docker("network", "ls", "--quiet").split()}


def nothing_more(before: set[str], image: str) -> None:
    """The engine removes a container a moment after it exits."""
    wait_until(lambda: engine_state(image) <= before, 300)


def command(folder: Path, *flags: str) -> list[str]:
    """The default pipeline with all its files below `folder`."""
    places = ["--runs-dir", str(folder / "runs"), "--registry", str(folder / "registry")]
    return [sys.executable, str(ROOT / "pipelines/run.py"), *places, *flags]


def in_containers(folder: Path, image: str, *flags: str) -> list[str]:
    """The same in containers; root has somebody else run it, who may read everything (as an interpreter in its home)."""
    folder.mkdir()
    words = command(folder, "--runner", "docker", "--image", image, *flags)
    if os.getuid():
        return words
    os.chown(folder, SOMEBODY, SOMEBODY)
    group = str(os.stat("/var/run/docker.sock").st_gid)
    may_read = ["--inh-caps", "-all,+dac_read_search", "--ambient-caps", "-all,+dac_read_search"]
    who = ["--reuid", str(SOMEBODY), "--regid", str(SOMEBODY), "--groups", group, *may_read]
    return ["setpriv", *who, "env", f"HOME={folder}", *words]


def weights(folder: Path, words: list[str]) -> dict[str, bytes]:
    """Runs the pipeline; returns the model's variables."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (summary,) = (folder / "runs").rglob("summary.json")
    assert json.loads(summary.read_text())["metrics"]["accuracy"] >= 0.97
    reader = tf.train.load_checkpoint(str(summary.parent / "job/model/variables/variables"))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("variables/")]
    assert len(names) >= 4
    return {name: reader.get_tensor(name).tobytes() for name in names}


def start(folder: Path, image: str) -> subprocess.Popen[bytes]:
    """Starts the pipeline in containers, and waits until it trains."""
    with open(folder.parent / "output", "wb") as output:
        words = in_containers(folder, image, "--train-steps", "1000000")
        run = subprocess.Popen(words, cwd=ROOT, stdout=output, stderr=output)
    wait_until(
        lambda: run.poll() is not None or list(folder.glob("runs/*/job/journal-*.jsonl")), 300
    )
    assert run.poll() is None, (folder.parent / "output").read_text()
    return run


def test_the_pipeline_in_containers_gives_the_weights_that_processes_give_and_files_of_who_ran_it(
    image, tmp_path
):
    before, folder = engine_state(image), tmp_path / "docker"
    there = weights(folder, in_containers(folder, image))
    nothing_more(before, image)
    assert {path.stat().st_uid for path in folder.rglob("*")} == {os.getuid() or SOMEBODY}
    folder = tmp_path / "process"
    assert there == weights(folder, command(folder))


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_while_it_trains_leaves_no_container(image, tmp_path, end):
    before = engine_state(image)
    run = start(tmp_path / "run", image)
    assert engine_state(image) - before
    run.send_signal(end)
    assert run.wait(60) != 0
    nothing_more(before, image)
    time.sleep(5)  # nor does anything start another one
    nothing_more(before, image)
