import socket
from pathlib import Path

import pytest

from common.errors import UserError
from components.train.backends import probe, process


def test_ports_are_nobody_elses_until_the_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with process.reserved(5) as first:
        monkeypatch.setenv("TMPDIR", str(tmp_path))  # As the steps of a pipeline have each their own.
        with process.reserved(5) as second:
            assert len({*first, *second}) == 10
            assert all(probe.FIRST_PORT <= port <= 32_767 for port in first + second)
    with process.reserved(5) as again:
        assert again == first


def test_port_in_use_is_passed_over():
    with process.reserved(1) as (port,):
        pass
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with process.reserved(1) as (other,):
            assert other != port
        assert len(set(probe.free_ports(50))) == 50


@pytest.mark.parametrize(
    ("text", "last"), [("32768\t60999\n", 32_767), ("20000 60999", 19_999), ("1024 65535", 32_767)]
)
def test_range_ends_where_that_of_outgoing_connections_begins(tmp_path: Path, text: str, last: int):
    (tmp_path / "range").write_text(text)
    assert probe.last_port(tmp_path / "range") == last


def test_too_many_ports_and_an_unusable_directory_are_user_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "last_port", lambda: probe.FIRST_PORT + 1)
    with pytest.raises(UserError, match="3 free ports between 10001 and 10002 are needed"), process.reserved(3):
        pass
    (tmp_path / "file").touch()
    monkeypatch.setattr(process, "_LOCKS", tmp_path / "file")
    with pytest.raises(UserError, match="cannot lock ports in"), process.reserved(1):
        pass
