"""The docker back end: real containers, real training."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine import check_recovery, docker, step_of

from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]


def launch(image: str, *more: str, stdout: Any = subprocess.PIPE) -> subprocess.Popen:
    words = [
        "--cluster",
        "clusters/local-sync.yaml",
        "--backend",
        "docker",
        "--image",
        image,
        *more,
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "components.train", *words], stdout=stdout, text=True, cwd=ROOT
    )


def network(job: Path) -> str:
    return f"training-{hashlib.sha256(os.path.realpath(job).encode()).hexdigest()[:12]}"


def containers(job: Path) -> list[str]:
    return docker(
        "ps",
        "--all",
        "--format",
        "{{.Names}}",
        "--filter",
        f"label=training.network={network(job)}",
    ).split()


def nothing_left(job: Path) -> bool:
    return not containers(job) and not docker(
        "network", "ls", "--quiet", "--filter", f"name={network(job)}"
    )


def kill(job: Path, replica: str) -> None:
    """SIGKILL for a replica's own process, the child of the container's init."""
    (name,) = (name for name in containers(job) if name.endswith(replica))
    pid = docker("inspect", "--format", "{{.State.Pid}}", name)
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(child), 9)


def dataset(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "components.convert", "--output", str(folder)], check=True, cwd=ROOT
    )
    return folder


def test_containers_train_together_and_survive_a_kill(image, tmp_path):
    job = tmp_path / "job"
    flags = [
        "--data-dir",
        str(dataset(tmp_path / "digits")),
        "--job-dir",
        str(job),
        "--train-steps",
        "3000",
    ]
    launcher = launch(image, "--", *flags, "--checkpoint-num-steps", "100")
    killed = False
    for _ in launcher.stdout:
        if not killed and step_of(job) >= 200:
            kill(job, "worker-0")
            killed = True
    assert launcher.wait() == 0
    assert killed
    check_recovery(job, saved=100, last=3000)
    assert {path.stat().st_uid for path in job.rglob("*")} == {os.getuid()}
    assert nothing_left(job)


def test_a_killed_worker_is_replaced_and_a_killed_parameter_server_resumes_all(image, tmp_path):
    job = tmp_path / "job"
    flags = [
        "--data-dir",
        str(dataset(tmp_path / "digits")),
        "--job-dir",
        str(job),
        "--train-steps",
        "10000",
    ]
    words = ["--cluster", "clusters/local-ps.yaml", "--", *flags, "--checkpoint-num-steps", "500"]
    with open(tmp_path / "output", "wb") as output:
        launcher = launch(image, *words, stdout=output)
    for replica, step in (("worker-1", 1000), ("ps-0", 5000)):
        wait_until(
            lambda step=step: launcher.poll() is not None or step_of(job, "chief-0") >= step, 300
        )
        kill(job, replica)
    assert launcher.wait() == 0, (tmp_path / "output").read_text()[-3000:]
    events = [json.loads(line) for line in (job / "launcher.jsonl").read_text().splitlines()]
    assert [event["replica"] for event in events if event["event"] == "blame"] == [
        "worker/1",
        "ps/0",
    ]
    alone, everybody = (event["replicas"] for event in events if event["event"] == "restart")
    assert alone == ["worker/1"] and len(everybody) == 4
    assert json.loads((job / "DONE.json").read_text())["step"] >= 10000
    assert nothing_left(job)


def test_containers_die_with_a_killed_launcher(image, tmp_path):
    launcher = launch(image, "--command", "sleep 100", "--job-dir", str(tmp_path))
    wait_until(lambda: len(containers(tmp_path)) == 2, 300)
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: nothing_left(tmp_path), 300)


def test_sigterm_reaches_the_program_and_its_exit_code_comes_back(image, tmp_path):
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(143)))\n"
        "print('ready', flush=True)\ntime.sleep(100)"
    )
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "waits.py").write_text(program)
    own = [
        "--command",
        "python -m waits",
        "--code",
        str(tmp_path / "code"),
        "--job-dir",
        str(tmp_path / "job"),
    ]
    launcher = launch(image, *own)
    seen: list[str] = []
    while sum("ready" in line for line in seen) < 2:
        seen.append(launcher.stdout.readline())
    launcher.terminate()
    output = launcher.communicate()[0]
    assert launcher.returncode == 143
    assert "chief/0 | saved" in output and "chief/0 ended: exit code 143" in output
    assert nothing_left(tmp_path / "job")
