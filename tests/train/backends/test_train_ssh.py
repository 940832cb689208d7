"""Tests of the ssh back end with a stand-in for ssh."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from components.train.backends import host_agent, ssh_client
from tests.programs import ended, run_python

pytestmark = pytest.mark.cluster

SHOWS_ITS_CODE = """
import json, os, stat
code = os.path.dirname(__file__)
files = [f"{folder}/{name}" for folder, _, names in os.walk(code) for name in names]
names = sorted(os.path.relpath(file, code) for file in files if "__pycache__" not in file)
mode = oct(stat.S_IMODE(os.stat(os.path.dirname(code)).st_mode))
print(json.dumps([code, mode, names]))
with open(os.environ["TRAINER_STATUS"], "w") as file:
    file.write('{"phase": "training", "step": 7}')
"""


def test_job_code_is_private_and_removed(clients):
    words = clients.program(SHOWS_ITS_CODE)
    code = clients.path / "code"
    for path in ("pkg/run.sh", ".env", ".env.local", ".git/config", "pkg/.env"):
        (code / path).parent.mkdir(exist_ok=True)
        (code / path).write_text("secret")
    out = ended(clients.start("ssh", *words, "--log-dir", clients.path / "logs"))
    (line,) = (line for line in out.splitlines() if line.startswith("chief/0 | ["))
    place, mode, names = json.loads(line.partition(" | ")[2])
    assert (mode, names) == ("0o700", ["mine.py", "pkg/run.sh"])
    assert not Path(place).exists()
    status = json.loads((clients.path / "logs" / "chief-0.status.json").read_text())
    assert status["step"] == 7


def test_lost_connection_is_a_preemption():
    request = {"host": "h", "ssh": ["sh", "-c", "exit 255"], "variables": [], "command": []}
    words = ["-m", ssh_client.__name__, "run", json.dumps({**request, "cwd": "/"})]
    assert run_python(*words, code=137) == "the connection to host h is lost\n"


def test_silent_launcher_kills_replica(tmp_path, monkeypatch):
    agent = tmp_path / "agent.py"
    source = Path(host_agent.__file__).read_text()
    agent.write_text(source.replace("SILENCE_S = 10.0", "SILENCE_S = 0.2"))
    monkeypatch.setattr(host_agent, "__file__", str(agent))
    request = {"command": ["sleep", "60"], "env": {}, "cwd": "/nowhere"}
    line = ["sh", "-c", ssh_client.on_host(sys.executable)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, bufsize=0) as process:
        process.stdin.write(ssh_client.message(request).encode())
        assert process.wait() == 137
