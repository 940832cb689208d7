"""Replicas that run elsewhere: their `cleanup` whatever happens, and what their clients tell late."""

import dataclasses
import signal
import sys
from pathlib import Path

import pytest
from train_fakes import ONE, PS, QUICK, SYNC, Bench, wait_until, waits

from components.train.backends.plan import Plan

pytestmark = pytest.mark.cluster


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


def test_cleanup_that_fails_or_hangs_is_told_and_tried_again_at_the_end(bench: Bench):
    for name, fails, why in (("fails", "exit 3", "exit code 3"), ("hangs", "sleep 60", "SIGKILL")):
        notes = bench.path / name
        once = ("sh", "-c", f"echo try >> {notes}; [ $(wc -l < {notes}) = 2 ] || {fails}")
        plan = with_commands(bench.plan(ONE, chief_0=""), cleanup=once)
        code, lines = bench.run(plan, dataclasses.replace(QUICK, cleanup_s=0.2))
        assert code == 0
        assert any(f"chief/0: the cleanup after it failed: {why}; will try" in line for line in lines)
        assert notes.read_text().split() == ["try", "try"]


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


def test_machines_are_levelled_before_all_start_again_and_not_before_one_does(bench: Bench):
    notes = bench.path / "notes"
    scripts = {name: f"open({str(notes)!r}, 'a').write({name!r} + ' ')\n" for name in ("chief_0", "worker_0", "ps_0")}
    scripts["worker_0"] += "if attempt == 0: sys.exit(7)\ntime.sleep(60)"
    scripts["ps_0"] += f"while open({str(notes)!r}).read().count('worker') < 2: time.sleep(0.01)\n"
    scripts["ps_0"] += "if attempt == 0: sys.exit(7)\ntime.sleep(60)"
    scripts["chief_0"] += "if attempt == 0: time.sleep(60)"
    plan = bench.plan(PS, max_restarts=2, **scripts)
    assert bench.run(dataclasses.replace(plan, level=note(notes, "level")))[0] == 0
    before, after = notes.read_text().split("level ")
    assert sorted(before.split()) == ["chief_0", "ps_0", "worker_0", "worker_0"]
    assert after.startswith(("chief_0", "ps_0", "worker_0"))


def test_job_whose_machines_cannot_be_levelled_ends_with_the_cause(bench: Bench):
    fails = python("import sys; print('again', file=sys.stderr); sys.exit('error: host b: no route')")
    plan = bench.plan(SYNC, max_restarts=5, worker_0="sys.exit(7)")
    code, lines = bench.run(dataclasses.replace(plan, level=fails))
    assert code == 7
    assert bench.starts() == ["chief/0", "worker/0", "worker/1"]
    assert "setup | again" in lines
    assert any("worker/0 failed first: exit code 7; host b: no route; log: " in line for line in lines)


def test_signal_while_machines_are_levelled_ends_the_job(bench: Bench):
    started = bench.path / "started"
    waits = python("import sys, time; open(sys.argv[1], 'w'); time.sleep(60)", started)
    plan = dataclasses.replace(bench.plan(ONE, max_restarts=5, chief_0="time.sleep(0.5); sys.exit(7)"), level=waits)
    launcher = bench.start(plan)
    wait_until(started.exists)
    launcher.send_signal(signal.SIGTERM)
    output = launcher.communicate(timeout=10)[0]
    assert launcher.returncode == 143, output
    assert bench.starts() == ["chief/0"]


def test_job_that_is_done_but_whose_results_could_not_be_fetched_says_so(bench: Bench):
    plan = with_commands(bench.plan(ONE, chief_0=""), cleanup=python("import sys; sys.exit('host a: no route')"))
    code, lines = bench.run(dataclasses.replace(plan, level=("true",)))
    assert code == 1
    assert "launcher | chief/0: the cleanup after it failed: exit code 1; will try again at the end" in lines
    assert "chief/0 | host a: no route" in lines
    assert lines[-1].startswith("launcher | done, but what it made is still on the chief's host")
