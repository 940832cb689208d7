"""The ssh back end, with two containers as hosts that share a directory: real sshd, real training."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import check_recovery, docker, remove, step_of

from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]
NAMES = ("host-a", "host-b")
# The packages alone: what a host knows of our code must have been sent to it.
DOCKERFILE = """FROM {image}
USER root
RUN rm -rf /app/*
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-server >/dev/null && mkdir -p /run/sshd
ENTRYPOINT ["/usr/sbin/sshd", "-D"]
"""


@pytest.fixture(scope="module")
def hosts(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Host file and ssh command of two containers with an ssh server."""
    directory, shared = tmp_path_factory.mktemp("hosts"), str(tmp_path_factory.getbasetemp())
    key = directory / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    docker(
        "build",
        "--quiet",
        "--tag",
        "training-hosts:test",
        "-",
        input=DOCKERFILE.format(image=image),
    )
    remove(*NAMES, network="training-hosts")
    docker("network", "create", "training-hosts")
    try:
        lines = []
        for name in NAMES:
            mount = ("--volume", f"{shared}:{shared}")
            docker(
                "run",
                "--detach",
                "--name",
                name,
                "--network",
                "training-hosts",
                *mount,
                "training-hosts:test",
            )
            docker("exec", name, "mkdir", "-p", "-m", "700", "/root/.ssh")
            docker("cp", f"{key}.pub", f"{name}:/root/.ssh/authorized_keys")
            docker("exec", name, "chown", "-R", "root:root", "/root/.ssh")
            address = docker(
                "inspect",
                "--format",
                "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}",
                name,
            )
            lines.append(f"root@{address}\n")
        file = directory / "hosts.txt"
        file.write_text("# two of them\n" + "".join(lines))
        ssh = (
            f"ssh -i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o "
            "LogLevel=ERROR"
        )
        yield str(file), ssh
    finally:
        remove(*NAMES, network="training-hosts")
        subprocess.run(["docker", "rmi", "training-hosts:test"], capture_output=True)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = str(tmp_path_factory.mktemp("data") / "dataset")
    subprocess.run(
        [sys.executable, "-m", "components.convert", "--output", directory], check=True, cwd=ROOT
    )
    return directory


def command(hosts: tuple[str, str], *more: str) -> list[str]:
    file, ssh = hosts
    words = [
        "--cluster",
        "clusters/local-sync.yaml",
        "--backend",
        "ssh",
        "--hosts",
        file,
        "--ssh-command",
        ssh,
    ]
    words += ["--remote-python", "/opt/venv/bin/python", *more]
    return [sys.executable, "-m", "components.train", *words]


def processes(name: str) -> str:
    return docker("exec", name, "sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")


def test_hosts_train_and_survive_kills(hosts, dataset, tmp_path):
    job = tmp_path / "job"
    flags = [
        "--data-dir",
        dataset,
        "--job-dir",
        str(job),
        "--train-steps",
        "300",
        "--checkpoint-num-steps",
        "40",
    ]
    flags += ["--model", "cnn", "--batch-size", "128"]
    with open(tmp_path / "output", "wb") as output:
        launcher = subprocess.Popen(command(hosts, "--", *flags), stdout=output, cwd=ROOT)
    for attempt, (step, victim) in enumerate([(60, "[t]rainer.task"), (160, "sshd: [r]oot@notty")]):
        journal = job / f"journal-chief-0-{attempt}.jsonl"
        wait_until(
            lambda journal=journal, step=step: journal.exists() and step_of(job) >= step, 300
        )
        docker("exec", "host-b", "pkill", "-9", "-f", victim)
    assert launcher.wait(180) == 0, (tmp_path / "output").read_text()
    journal = check_recovery(job, kills=2, saved=120, last=300)
    (validation,) = [event for event in journal if event["event"] == "evaluation"]
    assert validation["accuracy"] >= 0.95
    assert "the connection to host" in (job / "replicas" / "worker-0.log").read_text()
    assert not any("trainer.task" in processes(name) for name in NAMES)
    assert not list((job / "replicas").glob(".code-*"))


def test_job_directory_that_hosts_do_not_share_is_refused(hosts, dataset):
    with tempfile.TemporaryDirectory() as directory:
        flags = ["--data-dir", dataset, "--job-dir", f"{directory}/job", "--train-steps", "9"]
        done = subprocess.run(
            command(hosts, "--", *flags), capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 2
        assert "(does not share" in done.stderr
        assert os.listdir(directory) == []


def test_replicas_on_hosts_die_with_a_killed_launcher(hosts, tmp_path):
    own = ["--command", "sleep 100", "--job-dir", str(tmp_path)]
    launcher = subprocess.Popen(command(hosts, *own), cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_until(lambda: all("sleep 100" in processes(name) for name in NAMES), 300)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not any("sleep 100" in processes(name) for name in NAMES), 300)
