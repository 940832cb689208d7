"""Tests restarts after failures, with replicas of a few lines each."""

import pytest
from train_fakes import EVALUATED, ONE, SYNC

pytestmark = pytest.mark.cluster

ON_TERM = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); print('ready', flush=True)\n"
AFTER_WORKER = "wait_for('\\n', 'logs/worker-0.log'); sys.exit(0 if attempt else 1)"


def test_stopped_replica_is_blamed_before_peer(bench):
    freezes = (
        "if attempt == 0: print('.', flush=True); os.kill(os.getpid(), signal.SIGSTOP)\n"
        "time.sleep(60)"
    )
    gives_up = f"time.sleep(0.3); {AFTER_WORKER}"
    code, _ = bench.run(SYNC, max_restarts=1, chief_0=gives_up, worker_0=freezes)
    assert code == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["ending"]) == ("worker/0", "frozen (stopped)")


def test_late_report_of_kill_is_blamed(bench):
    """The client of a replica elsewhere may report its kill after peers have failed for it."""
    client = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\n"
    client += "time.sleep(0.3); sys.exit(0 if attempt else 137)"
    scripts = {"chief_0": AFTER_WORKER, "worker_0": client, "worker_1": ""}
    assert bench.run(SYNC, max_restarts=1, failure_s=5, report_delay_s=5, **scripts)[0] == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["kind"]) == ("worker/0", "preemption")


def test_silent_replica_is_frozen_and_restarted(bench):
    reports = {"reports": True, "silence_s": {"training": 2.0}}
    silent = "tell('training', 3)\nif attempt == 0: time.sleep(60)\n"
    silent += "for i in range(50): tell('training', i); time.sleep(0.02)"
    code, lines = bench.run(ONE, max_restarts=1, chief_0=silent, **reports)
    assert code == 0
    why = "no sign of life for 2 s while training"
    assert f"launcher | chief/0 is frozen ({why}); killing it" in lines
    (blame,), (end,) = bench.events("blame"), bench.events("end")
    assert (blame["step"], end["step"], end["why"]) == (3, 49, "done")


def test_time_limit_stops_all_replicas(bench):
    fails = ON_TERM + "if attempt == 0: sys.exit(7)\ntime.sleep(60)"
    limits = {"max_restarts": 1, "timeout_s": 10, "grace_period_s": 10}
    sleeps = ON_TERM + "time.sleep(60)"
    code, lines = bench.run(SYNC, chief_0=fails, worker_0=sleeps, **limits)
    assert code == 124
    why = "ended by its time limit (scheduling.timeout: 10 s)"
    assert f"launcher | {why}: stopping the replicas" in lines
    (start,), (restart,), (stop,) = (bench.events(kind) for kind in ("start", "restart", "stop"))
    # The clock did not begin again.
    assert stop["time"] - start["time"] > 9.99 > stop["time"] - restart["time"]
    assert {event["exit_code"] for event in bench.events("down")[-3:]} == {143}


def test_evaluator_has_its_own_budget(bench):
    chief = "wait_for('is left', 'launcher.jsonl'); tell('training', 1); time.sleep(0.1)\n"
    chief += "sys.exit(0 if attempt else 7)"
    scripts = {"chief_0": chief, "evaluator_0": "sys.exit(5)"}
    assert bench.run(EVALUATED, max_restarts=2, evaluator_s=0, **scripts)[0] == 0
    assert bench.starts() == ["chief/0", *["evaluator/0"] * 3, "chief/0"]
    assert [event["errors"] for event in bench.events("restart")] == [1, 2, 1]


def test_signal_before_restart_ends_job(bench):
    script = "time.sleep(0.3); sys.exit(7)"
    launcher = bench.start(ONE, max_restarts=9, reports=True, chief_0=script)
    next(line for line in launcher.stdout if "again in" in line)
    launcher.terminate()
    assert "told to stop by SIGTERM" in launcher.communicate()[0]
    assert launcher.returncode == 143
