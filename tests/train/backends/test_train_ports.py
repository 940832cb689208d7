import socket
from pathlib import Path

import pytest

from common.errors import UserError
from components.train.backends import process


def test_ports_are_reserved_until_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with process.reserved(5) as first:
        monkeypatch.setenv(
            "TMPDIR", str(tmp_path)
        )  # As the steps of a pipeline have each their own.
        with process.reserved(5) as second:
            assert len({*first, *second}) == 10
            assert {*first, *second} <= {*process.PORTS}
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


def test_unusable_directory_is_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(process, "_LOCKS", tmp_path / "file")
    with pytest.raises(UserError, match="cannot lock ports in"), process.reserved(1):
        pass
