import contextlib
import io
import json
import os
import pty
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from train_fakes import ONE, QUICK, Bench

from components.train.console.view import Json, Live, Plain, table, view_for
from components.train.supervision.audience import Row
from components.train.supervision.health import Vitals
from components.train.supervision.supervisor import run
from components.train.supervision.timeouts import Patience

ROWS = [
    Row(replica="chief/0", state="training", restarts=0, step=12_345, examples_per_s=2500.4, memory=512 * 2**20),
    Row(replica="ps/0", state="to be restarted", restarts=2),
]


def test_table_has_a_row_for_each_replica_with_what_is_known():
    text = io.StringIO()
    Console(file=text, width=100).print(table(ROWS))
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert lines == [
        ["replica", "state", "step", "examples/s", "restarts", "memory"],
        ["chief/0", "training", "12,345", "2,500", "512", "MiB"],
        ["ps/0", "to", "be", "restarted", "2"],
    ]


VALUES = st.none() | st.text("[/]ab", max_size=5) | st.integers() | st.floats() | st.lists(st.integers(), max_size=1)


@given(phase=VALUES, step=st.integers(), speed=VALUES, memory=VALUES)
def test_whatever_a_program_tells_of_itself_can_be_shown(phase: object, step: int, speed: object, memory: object):
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump({"phase": phase, "step": step, "examples_per_s": speed, "memory": memory}, file)
        file.flush()
        vitals = Vitals(file.name, os.getpid(), 0.0)
        vitals.look(1.0)
    row = vitals.row("chief/0", vitals.phase, 0)
    text = io.StringIO()
    Console(file=text, width=200).print(table([row]))
    assert row.state in text.getvalue()
    assert not vitals.frozen(1.0, Patience(), reports=True)


def test_json_is_one_object_a_line_with_events_and_replicas_lines(bench: Bench):
    with open(bench.path / "out", "w+b") as out:
        with contextlib.closing(Json(out.fileno())) as view:
            code = run(bench.plan(ONE, chief_0="print('{\"a\": \\'b\\'}'); sys.exit(3)"), view, QUICK)
        out.seek(0)
        objects = [json.loads(line) for line in out]
    assert code == 3
    assert [each["event"] for each in objects] == ["start", "up", "log", "down", "blame", "end"]
    assert (objects[2]["replica"], objects[2]["line"]) == ("chief/0", "{\"a\": 'b'}")
    assert objects[1:2] + objects[3:] == bench.events("up", "down", "blame", "end")


def test_live_view_draws_the_replicas_on_a_terminal_and_lets_lines_scroll_by(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    terminal, inner = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with os.fdopen(inner, "w") as file, contextlib.closing(Live(file.fileno())) as view:
        script = "print('[bold]hello[/] \\033[31mred\\033[0m', flush=True); tell('training', 7); time.sleep(0.2)"
        code = run(bench.plan(ONE, chief_0=script), view, QUICK)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal's end
        while part := os.read(terminal, 65_536):
            shown += part
    os.close(terminal)
    assert code == 0
    assert b"[bold]hello[/]" in shown  # Markup is the replica's own business.
    assert b"training" in shown
    assert b"chief/0 ended: exit code 0" in shown


def test_view_is_live_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    with view_for(None) as view:
        assert type(view) is Plain
    with view_for("json") as view:
        assert type(view) is Json
