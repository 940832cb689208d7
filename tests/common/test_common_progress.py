import sys

import pytest

from common import progress


@pytest.mark.parametrize(("terminal", "end"), [(False, "\n"), (True, "    \r")])
def test_lines_tell_how_far_it_is_if_it_is_long(capsys, monkeypatch, terminal, end):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    with progress.track("writing", 2000, "examples") as advance:
        advance(2000)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(progress, "_TERMINAL_EVERY_S" if terminal else "_LINE_EVERY_S", 0)
    with progress.track("writing", 2000, "examples") as advance:
        for more in (0, 500, 1500):
            advance(more)
    told = (
        f"writing: {share} of 2,000 examples in 0 s, about 0 s to go" for share in ("25%", "100%")
    )
    assert capsys.readouterr().out == "".join(line + end for line in told)
