"""The ssh back end, with two containers as hosts that share a directory: real sshd and training."""

import os
import subprocess
import tempfile

import pytest
from engine import check_recovery, docker, events_of, remove, step_of, train

from tests.programs import run, wait_until

pytestmark = pytest.mark.docker
NAMES = ("host-a", "host-b")
# The packages alone: what a host knows of our code must have been sent to it.
DOCKERFILE = """FROM {image}
USER root
RUN rm -rf /app/*
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-server >/dev/null
RUN mkdir -p /run/sshd
ENTRYPOINT ["/usr/sbin/sshd", "-D"]
"""
OPTIONS = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
ADDRESS = "'{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}'"


@pytest.fixture(scope="module")
def hosts(image, tmp_path_factory):
    """Flags of two containers with an ssh server."""
    directory, shared = tmp_path_factory.mktemp("hosts"), str(tmp_path_factory.getbasetemp())
    key, file = directory / "key", directory / "hosts.txt"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    docker("build --quiet --tag training-hosts:test -", typed=DOCKERFILE.format(image=image))
    remove(*NAMES, network="training-hosts")
    docker("network create training-hosts")
    try:
        lines = ["# two of them"]
        for name in NAMES:
            mount = f"--network training-hosts --volume {shared}:{shared}"
            docker(f"run --detach --name {name} {mount} training-hosts:test")
            docker(f"exec {name} mkdir -p -m 700 /root/.ssh")
            docker(f"cp {key}.pub {name}:/root/.ssh/authorized_keys")
            docker(f"exec {name} chown -R root:root /root/.ssh")
            lines.append("root@" + docker(f"inspect --format {ADDRESS} {name}"))
        file.write_text("\n".join(lines))
        flags = f"--backend ssh --hosts {file} --remote-python /opt/venv/bin/python"
        yield [*flags.split(), "--ssh-command", f"ssh -i {key} {OPTIONS}"]
    finally:
        remove(*NAMES, network="training-hosts")
        subprocess.run(["docker", "rmi", "training-hosts:test"], capture_output=True)


def processes(name):
    # A process that ends meanwhile makes `cat` fail.
    lines = docker(f"exec {name} sh -c 'cat /proc/[0-9]*/cmdline 2>/dev/null || true'")
    return lines.replace("\0", " ")


def test_hosts_train_and_survive_kills(hosts, data, tmp_path):
    job = tmp_path / "job"
    flags = f"-- {data} --train-steps 300 --checkpoint-num-steps 40 --model cnn --batch-size 128"
    with open(tmp_path / "output", "wb") as output:
        launcher = train(flags, *hosts, output=output)
    for attempt, (step, victim) in enumerate([(60, "[t]rainer.task"), (160, "sshd: [r]oot@notty")]):
        journal = job / f"journal-chief-0-{attempt}.jsonl"
        wait_until(
            lambda journal=journal, step=step: journal.exists() and step_of(job) >= step, 300
        )
        docker(f"exec host-b pkill -9 -f '{victim}'")
    assert launcher.wait(180) == 0, (tmp_path / "output").read_text()
    journal = check_recovery(job, kills=2, saved=120, last=300)
    (validation,) = events_of(journal, "evaluation")
    assert validation["accuracy"] >= 0.95
    assert "the connection to host" in (job / "replicas" / "worker-0.log").read_text()
    assert not any("trainer.task" in processes(name) for name in NAMES)
    assert not list((job / "replicas").glob(".code-*"))


def test_unshared_job_directory_is_refused(hosts, digits):
    with tempfile.TemporaryDirectory() as directory:
        flags = f"--data-dir {digits} --job-dir {directory}/job --train-steps 9"
        launcher = train(f"-- {flags}", *hosts)
        assert "(does not share" in launcher.communicate()[0] and launcher.returncode == 2
        assert os.listdir(directory) == []


def test_hosts_end_with_killed_launcher(hosts, tmp_path):
    launcher = train(f"--command 'sleep 100' --job-dir {tmp_path}", *hosts)
    wait_until(lambda: all("sleep 100" in processes(name) for name in NAMES), 300)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not any("sleep 100" in processes(name) for name in NAMES), 300)
