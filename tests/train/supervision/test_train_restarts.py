"""The failure contract, with replicas of five lines: who starts again after what, and when it is enough."""

import dataclasses
import signal
import time

import pytest
from train_fakes import EVALUATED, ONE, QUICK, SYNC, Bench, of, waits

from components.train.console.job_control import status

pytestmark = pytest.mark.cluster

ON_TERM = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); print('ready', flush=True)\n"


def once(what: str, then: str = "time.sleep(60)") -> str:
    """Does `what` at its first start, and `then` at the next."""
    return f"if attempt == 0:\n  {what}\nelse:\n  {then}"


def test_peer_that_gives_up_on_a_stopped_replica_is_not_to_blame(bench: Bench):
    gives_up = waits(bench, "worker-0") + "time.sleep(0.1)\nif attempt: sys.exit(0)\nsys.exit(1)"
    freezes = once("print('.', flush=True); os.kill(os.getpid(), signal.SIGSTOP)")
    code, _ = bench.run(bench.plan(SYNC, max_restarts=1, chief_0=gives_up, worker_0=freezes))
    assert code == 0
    (blame,) = bench.events("blame")
    assert (blame["replica"], blame["ending"]) == ("worker/0", "frozen (stopped)")


def test_silent_replica_is_frozen_and_one_that_never_came_up_too(bench: Bench):
    patience = dataclasses.replace(QUICK, start_s=30.0, silence_s={"training": 2.0})  # a busy machine takes its time
    talks = "for i in range(50): tell('training', i); time.sleep(0.02)"
    silent = "tell('training', 3)\nif attempt == 0: time.sleep(60)\n" + talks
    code, lines = bench.run(bench.plan(ONE, max_restarts=1, reports=True, chief_0=silent), patience)
    assert code == 0
    assert any("chief/0 is frozen (no sign of life for 2 s while training)" in line for line in lines)
    (blame,), (end,) = bench.events("blame"), bench.events("end")
    assert (blame["step"], end["step"], end["why"]) == (3, 49, "done")
    absent, patience = once("time.sleep(60)", "sys.exit(0)"), dataclasses.replace(patience, start_s=3.0)
    code, lines = bench.run(bench.plan(ONE, max_restarts=1, reports=True, chief_0=absent), patience)
    assert code == 0
    assert any("chief/0 is frozen (not up after" in line for line in lines)


def test_time_limit_has_all_save_and_end_with_124_whatever_has_started_again(bench: Bench):
    works = once("time.sleep(0.4); sys.exit(7)")
    plan = bench.plan(SYNC, max_restarts=1, chief_0=ON_TERM + works, worker_0=ON_TERM + "time.sleep(60)")
    patience = dataclasses.replace(QUICK, stop_s=10, failure_s=0.1)
    code, lines = bench.run(dataclasses.replace(plan, timeout_s=4), patience)
    assert code == 124
    assert "the time limit (scheduling.timeout: 4 s) is reached: stopping the replicas" in of("launcher", lines)
    (start,), (limit,), (end,) = bench.events("start"), bench.events("timeout"), bench.events("end")
    again = [event for event in bench.events("up") if event["replica"] == "chief/0"][-1]
    assert limit["time"] - start["time"] > 3.99 > limit["time"] - again["time"]  # The clock did not begin again.
    assert {event["exit_code"] for event in bench.events("down")[-3:]} == {143}
    assert (end["why"], end["exit_code"]) == ("ended by its time limit (scheduling.timeout: 4 s)", 124)


def test_chief_that_is_done_before_the_time_limit_has_succeeded_though_the_evaluator_is_stopped_by_it(bench: Bench):
    patience = dataclasses.replace(QUICK, evaluator_s=60, stop_s=10)
    plan = bench.plan(EVALUATED, chief_0="", evaluator_0=ON_TERM + "time.sleep(60)")
    code, _ = bench.run(dataclasses.replace(plan, timeout_s=1), patience)
    assert code == 0
    assert [(e["replica"], e["exit_code"]) for e in bench.events("down")] == [("chief/0", 0), ("evaluator/0", 143)]


@pytest.mark.parametrize(("fails", "times"), [("sys.exit(5)", 3), ("sys.exit(2)", 1)])
def test_evaluator_has_a_budget_of_its_own_and_its_end_does_not_end_the_job(bench: Bench, fails: str, times: int):
    spent = f"while 'spent' not in open({str(bench.path / 'launcher.jsonl')!r}).read(): time.sleep(0.01)\n"
    chief = spent + "tell('training', 1); time.sleep(0.1); sys.exit(0 if attempt else 7)"
    patience = dataclasses.replace(QUICK, evaluator_s=0)
    code, lines = bench.run(bench.plan(EVALUATED, max_restarts=2, evaluator_0=fails, chief_0=chief), patience)
    assert code == 0
    assert bench.starts() == ["chief/0", *["evaluator/0"] * times, "chief/0"]
    assert [e["errors"] for e in bench.events("restart") if e["replicas"] == ["chief/0"]] == [1]
    assert any("evaluator/0 is not started again: " in line for line in lines)
    assert status(str(bench.path)).restarts == {"errors": 1, "preemptions": 0}


def test_descendants_of_a_dead_replica_are_gone_before_it_starts_again(bench: Bench):
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
    code, _ = bench.run(bench.plan(ONE, max_restarts=1, chief_0=leaves))
    assert code == 0


def test_signal_while_waiting_to_start_again_ends_the_job(bench: Bench):
    launcher = bench.start(bench.plan(ONE, max_restarts=9, reports=True, chief_0="time.sleep(0.3); sys.exit(7)"))
    for line in launcher.stdout:
        if "again in" in line:
            break
    launcher.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    output = launcher.communicate(timeout=10)[0]
    assert launcher.returncode == 143
    assert "told to stop by SIGTERM" in output
    assert bench.starts() == ["chief/0"]
    assert time.monotonic() - begin < 2
