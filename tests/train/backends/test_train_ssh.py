"""Tests of the ssh back end with a stand-in for ssh."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from train_clients import Clients

from components.train.__main__ import main
from components.train.backends import host_agent
from components.train.backends.ssh_client import message, on_host

pytestmark = pytest.mark.cluster

SHOWS_ITS_CODE = """
import json, os, stat
code = os.path.dirname(__file__)
names = sorted(os.path.relpath(os.path.join(folder, name), code) for folder, _, names in os.walk(code) for name in names)
mode = oct(stat.S_IMODE(os.stat(os.path.dirname(code)).st_mode))
print(json.dumps([code, mode, [name for name in names if "__pycache__" not in name]]))
with open(os.environ["TRAINER_STATUS"], "w") as file:
    file.write('{"phase": "training", "step": 7}')
"""


def test_job_code_is_private_and_removed(clients: Clients):
    words = clients.program(SHOWS_ITS_CODE)
    code = clients.path / "code"
    for path in ("pkg/run.sh", ".env", ".env.local", ".git/config", "pkg/.env"):
        (code / path).parent.mkdir(exist_ok=True)
        (code / path).write_text("secret")
    logs = code / "logs"  # A copy of the code has no copy of itself.
    exit_code, out, err = clients.run("ssh", *words, "--log-dir", str(logs))
    assert exit_code == 0, out + err
    (line,) = (
        line.partition(" | ")[2] for line in out.splitlines() if line.startswith("chief/0 | [")
    )
    place, mode, names = json.loads(line)
    assert (mode, [name for name in names if not name.startswith("logs/")]) == (
        "0o700",
        ["mine.py", "pkg/run.sh"],
    )
    assert not Path(place).exists()
    assert json.loads((logs / "chief-0.status.json").read_text())["step"] == 7


def test_lost_connection_is_a_preemption():
    request = {
        "host": "h",
        "ssh": ["sh", "-c", "exit 255"],
        "variables": [],
        "command": [],
        "cwd": "/",
    }
    client = [
        sys.executable,
        "-m",
        "components.train.backends.ssh_client",
        "run",
        json.dumps(request),
    ]
    done = subprocess.run(client, capture_output=True, text=True)
    assert done.returncode == 137
    assert done.stdout == "the connection to host h is lost\n"


def test_silent_launcher_kills_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    agent = tmp_path / "agent.py"
    agent.write_text(
        Path(host_agent.__file__).read_text().replace("SILENCE_S = 10.0", "SILENCE_S = 0.2")
    )
    monkeypatch.setattr(host_agent, "__file__", str(agent))
    request = {"command": ["sleep", "60"], "env": {}, "cwd": "/nowhere"}
    with subprocess.Popen(
        ["sh", "-c", on_host(sys.executable)], stdin=subprocess.PIPE, bufsize=0
    ) as process:
        process.stdin.write(message(request).encode())
        assert process.wait() == 137


def test_unshared_job_directory_is_refused(clients: Clients, refused):
    script = (clients.path / "ssh").read_text()
    (clients.path / "ssh").write_text(
        script.replace("env -u", "sed s,/.training-,/no-such-,g | env -u").replace("<&0", "")
    )
    own = ("--command", "true", "--job-dir", str(clients.path / "job"))
    error = refused(main, *clients.flags("ssh"), *own)
    assert f"localhost (does not share {clients.path})" in error
    assert not (clients.path / "job").exists() and not list(clients.path.glob(".training-*"))
