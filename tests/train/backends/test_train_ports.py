from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from components.train.backends import ports, probe
from trainer.base.errors import UserError

HOLD = """
import sys
from components.train.backends.ports import reserved
with reserved(5) as ports:
    print(*ports, flush=True)
    sys.stdin.read()
"""


def test_launchers_started_at_once_never_choose_the_same_port(tmp_path: Path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # Each with a place of its own for temporary files, as the steps of a pipeline have.
    launchers = [
        subprocess.Popen([sys.executable, "-c", HOLD], **pipes, env={**os.environ, "TMPDIR": str(tmp_path / str(i))})
        for i in range(4)
    ]
    chosen = [port for launcher in launchers for port in launcher.stdout.readline().split()]
    for launcher in launchers:
        launcher.communicate()
    assert len(chosen) == len(set(chosen)) == 20


def test_port_is_free_again_after_the_block():
    with ports.reserved(2) as first, ports.reserved(2) as second:
        assert not set(first) & set(second)
    with ports.reserved(2) as again:
        assert again == first


def test_port_in_use_is_passed_over():
    with ports.reserved(1) as (port,):
        pass
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with ports.reserved(1) as (other,):
            assert other != port


def test_ports_lie_below_those_of_outgoing_connections():
    with socket.socket() as listener, ports.reserved(3) as chosen:
        listener.bind(("127.0.0.1", 0))
        assert all(10_000 < port < 32_768 for port in chosen)


@pytest.mark.parametrize(
    ("text", "last"), [("32768\t60999\n", 32_767), ("20000 60999", 19_999), ("1024 65535", 32_767)]
)
def test_range_ends_where_the_systems_begins(tmp_path: Path, text: str, last: int):
    (tmp_path / "range").write_text(text)
    assert probe.last_port(tmp_path / "range") == last


def test_too_many_ports_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "last_port", lambda: probe.FIRST_PORT + 1)
    with pytest.raises(UserError, match="3 free ports between 10001 and 10002 are needed"), ports.reserved(3):
        pass


def test_unusable_lock_directory_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(ports, "_LOCKS", tmp_path / "file")
    with pytest.raises(UserError, match="cannot lock ports in"), ports.reserved(1):
        pass
