import socket

from common.ports import PORTS, reserved


def test_ports_are_reserved_until_block_ends(tmp_path, monkeypatch):
    with reserved(5) as first:
        # As the steps of a pipeline have each their own.
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        with reserved(5) as second:
            assert len({*first, *second} & {*PORTS}) == 10
    with socket.create_server(("127.0.0.1", first[0])), reserved(5) as others:
        assert others[:4] == first[1:]
