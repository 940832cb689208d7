"""The ssh back end, with a stand-in for ssh."""

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import ModuleType

import pytest
from train_clients import Clients

from common.errors import UserError
from components.train.backends import probe
from components.train.backends.ssh import Facts, check
from components.train.backends.ssh_client import message, on_host, pack_code
from components.train.supervision import ssh_agent

pytestmark = pytest.mark.cluster

SHOWS_ITS_CODE = """
import json, os, stat
code = os.path.dirname(__file__)
paths = [code, *(os.path.join(folder, name) for folder, *names in os.walk(code) for name in sum(names, []))]
paths = [path for path in paths if "__pycache__" not in path]
modes = {os.path.relpath(path, code): oct(stat.S_IMODE(os.stat(path).st_mode)) for path in paths}
print(json.dumps([os.environ["TMPDIR"], modes]))
with open(os.environ["TRAINER_STATUS"], "w") as file:
    file.write('{"phase": "training", "step": 7}')
"""


def test_code_on_host_is_private_and_removed(clients: Clients):
    words = clients.program(SHOWS_ITS_CODE)
    code = clients.path / "code"
    (code / "pkg").mkdir()
    (code / "pkg" / "run.sh").touch(0o755)
    for secret in (".env", ".env.local", ".git/config", "pkg/.env"):
        (code / secret).parent.mkdir(exist_ok=True)
        (code / secret).write_text("secret")
    exit_code, out, err = clients.run("ssh", *words)
    assert exit_code == 0, out + err
    (line,) = (line.partition(" | ")[2] for line in out.splitlines() if line.startswith("chief/0 | ["))
    scratch, modes = json.loads(line)
    assert modes == {".": "0o700", "mine.py": "0o600", "pkg": "0o700", "pkg/run.sh": "0o700"}
    assert not Path(scratch).exists()
    assert json.loads((clients.path / "job/replicas/chief-0.status.json").read_text())["step"] == 7


def test_packed_code_takes_little_memory(tmp_path: Path):
    for number in range(400):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(10_000))
    tracemalloc.start()
    size = len(pack_code({".": str(tmp_path)}))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 4_000_000 < size < peak < 4 * size


def test_lost_connection_is_a_preemption(tmp_path: Path):
    request = {"host": "h", "ssh": ["sh", "-c", "exit 255"], "code": {}, "variables": [], "agent": {}}
    client = [sys.executable, "-m", "components.train.backends.ssh_client", json.dumps(request)]
    done = subprocess.run(client, capture_output=True, text=True)
    assert done.returncode == 137
    assert done.stdout == "the connection to host h is lost\n"


def test_replica_dies_when_the_launcher_is_silent(tmp_path: Path):
    agent = ModuleType("agent")
    agent.__file__ = str(tmp_path / "agent.py")
    source = Path(ssh_agent.__file__).read_text()
    Path(agent.__file__).write_text(source.replace("SILENCE_S = 30.0", "SILENCE_S = 0.2"))
    archive = b"\0" * 1024
    request = {"mark": f"test-{os.getpid()}", "command": ["sleep", "60"], "python": "", "env": {}, "cwd": "/nowhere"}
    with subprocess.Popen(["sh", "-c", on_host(sys.executable)], stdin=subprocess.PIPE, bufsize=0) as process:
        process.stdin.write(message(agent, {**request, "archive_bytes": len(archive)}) + archive)
        assert process.wait() == 137


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"tensorflow": "1.15"}, "host b: p has TensorFlow 1.15, this machine .*; install the same there"),
        ({"sees_marker": False}, "--job-dir /job is not the same place on host b as here; .* share .NFS., or .* .gs:"),
    ],
)
def test_host_on_which_the_trainer_cannot_run_is_refused(changes: dict, error: str):
    facts = {"executable": "p", "tensorflow": probe.tensorflow_version(), "cores": 4, "gpus": (), "ports": ()}
    good = {**facts, "sees_marker": True}
    with pytest.raises(UserError, match=error):
        check({"a": Facts(**good), "b": Facts(**good | changes)}, "/job")
