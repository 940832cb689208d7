"""Replicas that run elsewhere: their client's `stop` in place of SIGTERM, and the `cleanup` after it, whatever happens."""

from __future__ import annotations

import dataclasses
import signal
import sys
from pathlib import Path

from train_fakes import ONE, QUICK, SYNC, Bench, wait_until

from components.train.plan import Plan


def python(code: str, *args: object) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code, *map(str, args))


def note(file: Path, word: str) -> tuple[str, ...]:
    return python("import sys; open(sys.argv[1], 'a').write(sys.argv[2] + ' ')", file, word)


def with_commands(plan: Plan, **commands: tuple[str, ...]) -> Plan:
    return dataclasses.replace(plan, replicas=tuple(dataclasses.replace(r, **commands) for r in plan.replicas))


def test_cleanup_is_done_before_the_replica_starts_again_and_at_the_end(bench: Bench):
    notes = bench.path / "notes"
    script = f"open({str(notes)!r}, 'a').write('run '); sys.exit(0 if attempt else 7)"
    plan = with_commands(bench.plan(ONE, max_restarts=1, chief_0=script), cleanup=note(notes, "clean"))
    assert bench.run(plan)[0] == 0
    assert notes.read_text().split() == ["run", "clean", "run", "clean"]


def test_guard_cleans_up_after_a_launcher_killed_by_sigkill(bench: Bench):
    notes = bench.path / "notes"
    launcher = bench.start(with_commands(bench.plan(SYNC), cleanup=note(notes, "clean")))
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: notes.exists() and notes.read_text().split() == ["clean"] * 3, limit_s=5)


def test_cleanup_that_fails_is_told_and_tried_again_at_the_end(bench: Bench):
    notes = bench.path / "notes"
    fails = python(
        "import os, sys; open(sys.argv[1], 'a').write('try '); sys.exit(os.path.getsize(sys.argv[1]) < 8)", notes
    )
    code, lines = bench.run(with_commands(bench.plan(ONE, chief_0=""), cleanup=fails))
    assert code == 0
    assert any("chief/0: what it left could not be removed with" in line for line in lines)
    assert notes.read_text().split() == ["try", "try"]


def test_cleanup_that_hangs_is_killed(bench: Bench):
    notes = bench.path / "notes"
    hangs = ("sh", "-c", f"test -e {notes} || {{ touch {notes}; sleep 60; }}")
    code, lines = bench.run(
        with_commands(bench.plan(ONE, chief_0=""), cleanup=hangs), dataclasses.replace(QUICK, cleanup_s=0.2)
    )
    assert code == 0
    assert any("could not be removed" in line for line in lines)


def test_stop_command_stands_in_for_sigterm(bench: Bench):
    flag = bench.path / "stop"
    script = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
        f"while not os.path.exists({str(flag)!r}): time.sleep(0.01)\nsys.exit(143)"
    )
    plan = with_commands(bench.plan(ONE, chief_0=script), stop=note(flag, "stop"))
    launcher = bench.start(plan, dataclasses.replace(QUICK, stop_s=30))
    while "ready" not in launcher.stdout.readline():
        pass
    launcher.send_signal(signal.SIGTERM)
    output = launcher.communicate(timeout=10)[0]
    assert launcher.returncode == 143
    assert "chief/0 ended: exit code 143" in output


def test_client_that_tells_of_a_kill_later_than_its_peers_failed_is_to_blame(bench: Bench):
    peer = "time.sleep(0.1); sys.exit(0 if attempt else 1)"
    client = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(0.3); sys.exit(0 if attempt else 137)"
    plan = bench.plan(SYNC, max_restarts=1, chief_0=peer, worker_0=client, worker_1="sys.exit(0)")
    code, _ = bench.run(plan, dataclasses.replace(QUICK, failure_s=5))
    assert code == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["kind"]) == ("worker/0", "preemption")
