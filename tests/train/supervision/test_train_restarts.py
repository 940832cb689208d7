"""Tests restarts after failures, with replicas of a few lines each."""

import dataclasses
import signal

import pytest
from train_fakes import EVALUATED, ONE, QUICK, SYNC, Bench, waits

pytestmark = pytest.mark.cluster

ON_TERM = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); print('ready', flush=True)\n"


def test_stopped_replica_is_blamed_before_peer(bench: Bench):
    gives_up = waits(bench, "worker-0") + "time.sleep(0.1); sys.exit(0 if attempt else 1)"
    freezes = (
        "print('.', flush=True)\nif attempt == 0: os.kill(os.getpid(), "
        "signal.SIGSTOP)\ntime.sleep(60)"
    )
    code, _ = bench.run(bench.plan(SYNC, max_restarts=1, chief_0=gives_up, worker_0=freezes))
    assert code == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["ending"]) == ("worker/0", "frozen (stopped)")


def test_silent_replica_is_frozen_and_restarted(bench: Bench):
    patience = dataclasses.replace(
        QUICK, start_s=30.0, silence_s={"training": 2.0}
    )  # a busy machine takes its time
    talks = "for i in range(50): tell('training', i); time.sleep(0.02)"
    silent = "tell('training', 3)\nif attempt == 0: time.sleep(60)\n" + talks
    code, lines = bench.run(bench.plan(ONE, max_restarts=1, reports=True, chief_0=silent), patience)
    assert code == 0
    assert any(
        "chief/0 is frozen (no sign of life for 2 s while training)" in line for line in lines
    )
    (blame,), (end,) = bench.events("blame"), bench.events("end")
    assert (blame["step"], end["step"], end["why"]) == (3, 49, "done")


def test_time_limit_stops_all_replicas(bench: Bench):
    fails = ON_TERM + "if attempt == 0: sys.exit(7)\ntime.sleep(60)"
    plan = bench.plan(SYNC, max_restarts=1, chief_0=fails, worker_0=ON_TERM + "time.sleep(60)")
    patience = dataclasses.replace(QUICK, grace_period_s=10, failure_s=0.1)
    code, lines = bench.run(dataclasses.replace(plan, timeout_s=10), patience)
    assert code == 124
    why = "ended by its time limit (scheduling.timeout: 10 s)"
    assert f"launcher | {why}: stopping the replicas" in lines
    (start,), (stop,), (end,) = bench.events("start"), bench.events("stop"), bench.events("end")
    again = [event for event in bench.events("up") if event["replica"] == "chief/0"][-1]
    assert (
        stop["time"] - start["time"] > 9.99 > stop["time"] - again["time"]
    )  # The clock did not begin again.
    assert {event["exit_code"] for event in bench.events("down")[-3:]} == {143}
    assert (end["why"], end["exit_code"]) == (why, 124)


def test_chief_done_before_limit_succeeds(bench: Bench):
    patience = dataclasses.replace(QUICK, evaluator_s=60, grace_period_s=10)
    plan = bench.plan(EVALUATED, chief_0="", evaluator_0=ON_TERM + "time.sleep(60)")
    assert bench.run(dataclasses.replace(plan, timeout_s=10), patience)[0] == 0
    assert bench.endings() == {"chief/0": "exit code 0", "evaluator/0": "exit code 143"}


def test_evaluator_has_its_own_budget(bench: Bench):
    record = str(bench.path / "launcher.jsonl")
    spent = f"while 'is left' not in open({record!r}).read(): time.sleep(0.01)\n"
    chief = spent + "tell('training', 1); time.sleep(0.1); sys.exit(0 if attempt else 7)"
    patience = dataclasses.replace(QUICK, evaluator_s=0)
    code, _ = bench.run(
        bench.plan(EVALUATED, max_restarts=2, evaluator_0="sys.exit(5)", chief_0=chief), patience
    )
    assert code == 0
    assert bench.starts() == ["chief/0", *["evaluator/0"] * 3, "chief/0"]
    assert [event["errors"] for event in bench.events("restart")] == [1, 2, 1]


def test_descendants_are_gone_before_restart(bench: Bench):
    pid = str(bench.path / "pid")
    leaves = f"""
import subprocess
if attempt == 0:
    open({pid!r}, "w").write(str(subprocess.Popen(["sleep", "60"], start_new_session=True).pid))
    sys.exit(7)
try:
    alive = " Z " not in open("/proc/" + open({pid!r}).read() + "/stat").read()
except OSError:
    alive = False
sys.exit(9 if alive else 0)
"""
    assert bench.run(bench.plan(ONE, max_restarts=1, chief_0=leaves))[0] == 0


def test_signal_before_restart_ends_job(bench: Bench):
    launcher = bench.start(
        bench.plan(ONE, max_restarts=9, reports=True, chief_0="time.sleep(0.3); sys.exit(7)")
    )
    next(line for line in launcher.stdout if "again in" in line)
    launcher.send_signal(signal.SIGTERM)
    output = launcher.communicate()[0]
    assert launcher.returncode == 143
    assert "told to stop by SIGTERM" in output


def test_late_report_of_kill_is_blamed(bench: Bench):
    """The client of a replica elsewhere may report its kill after peers have failed for it."""
    peer = waits(bench, "worker-0") + "sys.exit(0 if attempt else 1)"
    client = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
    client += "time.sleep(0.3); sys.exit(0 if attempt else 137)"
    plan = bench.plan(SYNC, max_restarts=1, chief_0=peer, worker_0=client, worker_1="")
    assert bench.run(plan, dataclasses.replace(QUICK, failure_s=5, report_delay_s=5))[0] == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["kind"]) == ("worker/0", "preemption")
