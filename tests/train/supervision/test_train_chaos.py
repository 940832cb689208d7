"""The failure contract with the real trainer; `make chaos` does the same at random and more often."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from chaos import Arena, Blow, arena

from components.train.supervision.launcher_log import last_run

pytestmark = pytest.mark.cluster
ROOT = pathlib.Path(__file__).parents[3]
ONE_WORKER = "strategy: parameter_server\nchief: {}\nworker: {}\nps: {}\n"


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    return arena(tmp_path_factory.mktemp("chaos"), "digits")


def blow(number: signal.Signals, victim: str, when: float) -> Blow:
    return Blow(victim=victim, number=number, when=when)


def test_synchronous_job_bears_a_killed_a_leaving_and_a_frozen_replica(ring: Arena):
    blows = [
        blow(signal.SIGKILL, "worker/0", 0.1),
        blow(signal.SIGTERM, "chief/0", 0.4),
        blow(signal.SIGSTOP, "worker/0", 0.7),
    ]
    accuracy, restarted = ring.run(ROOT / "clusters" / "local-sync.yaml", blows, "sync")
    assert accuracy > 0.95
    assert restarted == [("chief/0", "worker/0")] * 3


def test_parameter_server_job_bears_killed_replicas_and_its_worker_comes_back_alone(
    ring: Arena, tmp_path: pathlib.Path
):
    # Of one worker: without its coming back, the chief that goes on would have nobody to give work to.
    (tmp_path / "cluster.yaml").write_text(ONE_WORKER)
    blows = [blow(signal.SIGKILL, "worker/0", 0.1), blow(signal.SIGKILL, "ps/0", 0.5)]
    accuracy, restarted = ring.run(tmp_path / "cluster.yaml", blows, "ps")
    assert accuracy > 0.93
    assert restarted == [("worker/0",), ("chief/0", "worker/0", "ps/0")]


def test_worker_dies_before_result_is_fetched(ring: Arena, tmp_path: pathlib.Path):
    (tmp_path / "cluster.yaml").write_text(ONE_WORKER)
    program = f"{sys.executable} {pathlib.Path(__file__).with_name('unlucky_trainer.py')}"
    job = tmp_path / "job"
    launcher = ["--cluster", tmp_path / "cluster.yaml", "--command", program, "--job-dir", job]
    trainer = ["--data-dir", ring.data_dir, "--job-dir", job, "--train-steps", ring.steps, "--batch-size", 64]
    line = [sys.executable, "-m", "components.train", *launcher, "--", *trainer, "--strategy", "parameter_server"]
    done = subprocess.run([*map(str, line)], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()
    record = last_run(str(job))
    assert [event["replicas"] for event in record if event["event"] == "restart"] == [["worker/0"]]
    assert json.loads((job / "DONE.json").read_text())["step"] == ring.steps


def test_parameter_servers_run_on_one_core(ring: Arena, tmp_path: pathlib.Path):
    (tmp_path / "cluster.yaml").write_text(ONE_WORKER)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        accuracy, _ = ring.run(tmp_path / "cluster.yaml", [], "one-core")
    finally:
        os.sched_setaffinity(0, cores)
    assert accuracy > 0.93
