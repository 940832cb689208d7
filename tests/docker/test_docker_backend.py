"""The docker back end: real containers, real training."""

import hashlib
import os
import signal
from pathlib import Path

import pytest
from engine import check_recovery, docker, step_of, train

from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.docker
WAITS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(143)))
print('ready', flush=True)
time.sleep(100)
"""


def launch(image, line, **options):
    return train(line, "--backend", "docker", "--image", image, **options)


def network(job):
    return f"training-{hashlib.sha256(os.path.realpath(job).encode()).hexdigest()[:12]}"


def containers(job):
    label = f"label=training.network={network(job)}"
    return docker(f"ps --all --format '{{{{.Names}}}}' --filter {label}").split()


def nothing_left(job):
    return not containers(job) and not docker(f"network ls --quiet --filter name={network(job)}")


def kill(job, replica):
    """SIGKILL for a replica's own process, the child of the container's init."""
    (name,) = (name for name in containers(job) if name.endswith(replica))
    pid = docker(f"inspect --format '{{{{.State.Pid}}}}' {name}")
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)


def test_containers_survive_kill(image, data, tmp_path):
    job, killed = tmp_path / "job", False
    launcher = launch(image, f"-- {data} --train-steps 3000 --checkpoint-num-steps 100")
    for _ in launcher.stdout:
        if not killed and step_of(job) >= 200:
            kill(job, "worker-0")
            killed = True
    assert launcher.wait() == 0 and killed
    check_recovery(job, saved=100, last=3000)
    assert {path.stat().st_uid for path in job.rglob("*")} == {os.getuid()}
    assert nothing_left(job)


def test_containers_die_with_killed_launcher(image, tmp_path):
    """Also while the engine creates the containers."""
    launcher = launch(image, f"--command 'sleep 100' --job-dir {tmp_path}")
    wait_until(lambda: containers(tmp_path), 300)
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: nothing_left(tmp_path), 300)


def test_sigterm_reaches_own_program(image, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "waits.py").write_text(WAITS)
    own = f"--code {tmp_path / 'code'} --job-dir {tmp_path / 'job'}"
    launcher = launch(image, f"--command 'python -m waits' {own}")
    seen = []
    while sum("ready" in line for line in seen) < 2:
        seen.append(launcher.stdout.readline())
    launcher.terminate()
    output = launcher.communicate()[0]
    assert launcher.returncode == 143
    assert "chief/0 | saved" in output and "chief/0 ended: exit code 143" in output
    assert nothing_left(tmp_path / "job")
