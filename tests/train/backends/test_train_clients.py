"""Replicas that run elsewhere: their `cleanup` whatever happens, and what their clients tell late."""

import dataclasses
import sys
from pathlib import Path

import pytest
from train_fakes import ONE, QUICK, SYNC, Bench, waits

from components.train.backends.plan import Plan

pytestmark = pytest.mark.cluster
BRIEF = dataclasses.replace(QUICK, cleanup_s=0.2)


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


@pytest.mark.parametrize(("command", "why"), [("exit 3", "exit code 3"), ("sleep 60", "timed out")])
def test_cleanup_that_fails_or_hangs_ends_no_job(bench: Bench, command: str, why: str):
    plan = with_commands(bench.plan(ONE, chief_0=""), cleanup=("sh", "-c", command))
    code, lines = bench.run(dataclasses.replace(plan, teardown=note(bench.path / "torn", "down")), BRIEF)
    assert code == 0
    assert any("chief/0: the cleanup after it failed: " in line and why in line for line in lines)
    assert (bench.path / "torn").read_text() == "down "


def test_client_that_tells_of_a_kill_later_than_its_peers_failed_is_to_blame(bench: Bench):
    peer = waits(bench, "worker-0") + "sys.exit(0 if attempt else 1)"
    client = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
    client += "time.sleep(0.3); sys.exit(0 if attempt else 137)"
    plan = bench.plan(SYNC, max_restarts=1, chief_0=peer, worker_0=client, worker_1="sys.exit(0)")
    plan = with_commands(plan, cleanup=("true",))
    code, _ = bench.run(plan, dataclasses.replace(QUICK, failure_s=5, hear_s=5))
    assert code == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["kind"]) == ("worker/0", "preemption")
