"""Tests of the back ends by the command line, with stand-ins for `ssh` and `docker`.

tests/docker has containers and hosts that outlive a killed launcher.
"""

import json
import os

import pytest

from components.train.__main__ import main
from tests.programs import ended

pytestmark = pytest.mark.cluster


def test_sigterm_reaches_program(clients):
    waits = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(143)))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    launcher = clients.start("ssh", *clients.program(waits))
    for _ in range(2):
        next(line for line in launcher.stdout if "ready" in line)
    launcher.terminate()
    out = ended(launcher, 143)
    assert "chief/0 | saved" in out and "chief/0 ended: exit code 143" in out


def test_containers_mount_only_job_directories(clients, capsys):
    job, code, logs, more = (
        clients.path / name for name in ("job", "code", "code/logs", "more, and more")
    )
    more.mkdir()
    own = [*clients.program(""), "--log-dir", str(logs), "--mount", str(more)]
    assert main([*clients.flags("docker"), "--dry-run", *own]) == 0
    line = json.loads(capsys.readouterr().out)["replicas"][1]["command"]
    assert sorted(word for word in line if word.startswith("--mount=")) == [
        f'--mount=type=bind,"source={code}","target={code}",readonly',
        *(f'--mount=type=bind,"source={path}","target={path}"' for path in (logs, job, more)),
    ]
    safe = {"--cap-drop=ALL", "--security-opt=no-new-privileges"}
    assert {*safe, f"--user={os.getuid()}:{os.getgid()}"} <= {*line}
    assert not any("--publish" in word for word in line)
    assert not job.exists()


def test_missing_engine_or_image_is_refused(clients, refused):
    own = (*clients.flags("docker"), "--command", "true", *clients.job_dir)
    assert "get it with 'docker pull missing'" in refused(main, *own, "--image", "missing")
    assert "no such file or directory" in refused(main, *own, "--mount", "/no/such")
    (clients.path / "docker").write_text("#!/bin/sh\necho 'Cannot connect' >&2; exit 1")
    assert "no container engine: Cannot connect; start Docker" in refused(main, *own)


def test_silent_hosts_are_refused_by_name(clients, refused):
    own = ("--command", "true", *clients.job_dir)
    (clients.path / "hosts").write_text("dead-1\nme@dead-2:2222\n")
    error = refused(main, *clients.flags("ssh"), *own)
    assert "cannot run on 2 of 2 hosts: dead-1 (ssh: connect to host dead-1" in error
    assert "; dead-2 (ssh:" in error
    assert "add --hosts FILE" in refused(main, *clients.flags("ssh")[:4], *own)
    assert not (clients.path / "job").exists()
