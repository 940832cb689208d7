"""The back ends as the command line has them, with stand-ins for `ssh` and `docker`."""

import json
import os
import time

import pytest
from train_clients import Clients
from train_fakes import guard_of, wait_until

from components.train.__main__ import main

pytestmark = pytest.mark.cluster

ELSEWHERE = ("docker", "ssh")
THREE_LINES = """import json, os, sys
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task["type"], task["index"], sys.argv[1:])
"""


@pytest.mark.parametrize("backend", ["process", *ELSEWHERE])
def test_a_three_line_program_of_the_users_own_runs(clients: Clients, backend: str):
    code, out, err = clients.run(backend, *clients.program(THREE_LINES))
    assert code == 0, out + err
    for role in ("chief", "worker"):
        assert f"{role}/0 | {role} 0 ['a b', \"it's\"]" in out
    assert not list(clients.path.glob("*.pid")) and not list(clients.path.glob("*.network"))
    assert "lost" not in out


@pytest.mark.parametrize(("backend", "guard_too"), [("docker", False), ("ssh", False), ("ssh", True)])
def test_nothing_outlives_a_launcher_killed_by_sigkill(clients: Clients, backend: str, guard_too: bool):
    word = f"0.{time.time_ns()}"
    launcher = clients.start(backend, "--command", f"sleep 60 {word}", "--job-dir", str(clients.path / "job"))
    wait_until(lambda: sum(each.info["cmdline"][0] == "sleep" for each in clients.processes(word)) == 2)
    if guard_too:
        guard_of(launcher).kill()
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: not clients.processes(word) and not list(clients.path.glob("*.network")))


@pytest.mark.parametrize("backend", ELSEWHERE)
def test_sigterm_reaches_the_program(clients: Clients, backend: str):
    waits = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(143)))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    launcher = clients.start(backend, *clients.program(waits))
    seen = [launcher.stdout.readline()]
    while sum("ready" in line for line in seen) < 2 and seen[-1]:
        seen.append(launcher.stdout.readline())
    launcher.terminate()
    out = launcher.communicate()[0]
    assert launcher.returncode == 143, out
    assert "chief/0 | saved" in out and "chief/0 ended: exit code 143" in out


def test_next_launcher_removes_what_a_killed_one_left(clients: Clients):
    first = clients.start("docker", "--command", "sleep 60", "--job-dir", str(clients.path / "job"))
    wait_until(lambda: len(list(clients.path.glob("*.pid"))) == 2)
    guard_of(first).kill()
    first.kill()
    first.communicate()
    assert len(list(clients.path.glob("*.pid"))) == 2
    assert clients.run("docker", "--command", "true", "--job-dir", str(clients.path / "job"))[0] == 0
    assert not list(clients.path.glob("*.pid")) and not list(clients.path.glob("*.network"))


def test_containers_see_only_the_directories_of_the_job(clients: Clients, capsys: pytest.CaptureFixture):
    job, more = clients.path / "job", clients.path / "more, and more"
    more.mkdir()
    own = [*clients.program(THREE_LINES), "--log-dir", str(clients.path / "code" / "logs")]
    own += ["--mount", str(more)]
    assert main([*clients.flags("docker"), "--dry-run", *own]) == 0
    plan = json.loads(capsys.readouterr().out)
    line = plan["replicas"][1]["command"]
    mounts = [word.removeprefix("--mount=") for word in line if word.startswith("--mount=")]
    assert sorted(mounts) == [
        f'type=bind,"source={clients.path / "code"}","target={clients.path / "code"}",readonly',
        f'type=bind,"source={clients.path / "code" / "logs"}","target={clients.path / "code" / "logs"}"',
        f'type=bind,"source={job}","target={job}"',
        f'type=bind,"source={more}","target={more}"',
    ]
    assert line[-7:] == ["--entrypoint", "python", "tfrecord-training:dev", "-m", "mine", "a b", "it's"]
    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges", f"--user={os.getuid()}:{os.getgid()}"} <= {*line}
    assert not any("--publish" in word for word in line)
    config = json.loads(plan["replicas"][1]["env"]["TF_CONFIG"])
    assert config["cluster"] == {"chief": ["chief-0:2222"], "worker": ["worker-0:2222"]}
    assert not job.exists()


def test_no_engine_and_no_image_are_told_in_one_line(clients: Clients, refused, monkeypatch: pytest.MonkeyPatch):
    own = (*clients.flags("docker"), "--command", "true", "--job-dir", str(clients.path / "job"))
    assert "get it with 'docker pull missing'" in refused(main, *own, "--image", "missing")
    (clients.path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert "no container engine: Cannot connect to the Docker daemon; start Docker" in refused(main, *own)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no container engine: there is no program docker" in refused(main, *own)
    assert "no such file or directory" in refused(main, *own, "--mount", "/no/such")


def test_each_host_that_does_not_answer_is_named(clients: Clients, refused):
    own = (*clients.flags("ssh"), "--command", "true", "--job-dir", str(clients.path / "job"))
    (clients.path / "hosts").write_text("dead-1\nme@dead-2:2222\n")
    error = refused(main, *own)
    assert "cannot run on 2 of 2 hosts: dead-1 (ssh: connect to host dead-1" in error and "; dead-2 (ssh:" in error
    assert "add --hosts FILE" in refused(main, "--cluster", own[1], "--backend", "ssh", *own[-4:])
    assert not (clients.path / "job").exists()
