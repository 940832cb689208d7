import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest
from train_fakes import CALM, EVALUATED, ONE, PS, SYNC, Bench, guard_of, of, wait_until, waits

from common.errors import UserError
from components.train.supervision.health import Patience

pytestmark = pytest.mark.cluster

SLOW = Patience(grace_period_s=30, failure_s=30, join_s=30, evaluator_s=30, **CALM)
STUBBORN = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)
# Writes `saved` half a second after its first SIGTERM.
SAVING = (
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('saved'), sys.exit(143)));"
    "print('ready', flush=True); time.sleep(60)"
)


def test_output_is_shown_in_whole_lines(bench: Bench):
    last = b"caf\xc3\xa9 \xff\n\n10%\r20%\rdone\r\n"
    script = f"""
for i in range(400):
    os.write(1, b"%d-" % i)
    os.write(2, b"x" * 300 + b"\\n")
os.write(1, {last!r} + b"y" * 200_000)
"""
    code, lines = bench.run(bench.plan(SYNC, chief_0=script, worker_0=script, worker_1=""), SLOW)
    assert code == 0
    expected = [f"{i}-{'x' * 300}" for i in range(400)]
    content = "".join(f"{line}\n" for line in expected).encode() + last + b"y" * 200_000
    expected += ["café \ufffd", "", "10%", "20%", "done"]
    for role in ("chief", "worker"):
        shown = of(f"{role}/0", lines)
        assert shown[:405] == expected
        assert "".join(shown[405:]) == "y" * 200_000
        assert (bench.path / "logs" / f"{role}-0.log").read_bytes() == content


def test_failure_stops_others_and_is_reported(bench: Bench):
    failing = (
        waits(bench, "chief-0", "worker-0") + "for i in range(30): print('line', i)\nsys.exit(3)"
    )
    plan = bench.plan(SYNC, chief_0=STUBBORN, worker_0=SAVING, worker_1=failing)
    code, lines = bench.run(plan, Patience(failure_s=0.5, grace_period_s=3600))
    assert code == 3
    assert bench.endings()["chief/0"] == "SIGKILL"
    log = bench.path / "logs" / "worker-1.log"
    why = "no restart after errors is left (max_restarts: 0)"
    assert (
        lines[-21]
        == f"launcher | worker/1 failed first: exit code 3; {why}; log: {log}; its last lines:"
    )
    assert lines[-20:] == [f"launcher |   line {i}" for i in range(10, 30)]
    (blame,) = bench.events("blame")
    assert (blame["log"], blame["tail"]) == (str(log), [f"line {i}" for i in range(10, 30)])


def test_blame_follows_order_of_death(bench: Bench):
    plan = bench.plan(SYNC)
    launcher = bench.start(plan)
    pids = {}
    for process in bench.processes():
        pids[os.path.basename(process.environ()["TRAINER_STATUS"])] = process.pid
    launcher.send_signal(signal.SIGSTOP)
    # In neither the order of start nor that of ids.
    for name, number in (
        ("worker-0", signal.SIGKILL),
        ("worker-1", signal.SIGABRT),
        ("chief-0", signal.SIGSEGV),
    ):
        os.kill(pids[f"{name}.status.json"], number)
        time.sleep(0.05)
    launcher.send_signal(signal.SIGCONT)
    output = launcher.communicate()[0]
    assert launcher.returncode == 128 + signal.SIGKILL
    assert "worker/0 failed first: SIGKILL" in output


def test_chief_success_stops_parameter_servers(bench: Bench):
    assert bench.run(bench.plan(PS, chief_0="print('done')", ps_0="time.sleep(60)"), SLOW)[0] == 0
    assert bench.endings() == {"chief/0": "exit code 0", "worker/0": "SIGTERM", "ps/0": "SIGTERM"}


def test_evaluator_and_workers_end_in_bounds(bench: Bench):
    code, lines = bench.run(
        bench.plan(EVALUATED, chief_0="", evaluator_0="time.sleep(0.3); print('score')"), SLOW
    )
    assert code == 0
    assert of("evaluator/0", lines) == ["score"]
    assert bench.run(bench.plan(SYNC, chief_0="", worker_0="", worker_1=STUBBORN))[0] == 0
    assert bench.endings()["worker/1"].startswith("SIG")


def test_synchronous_workers_may_end_by_themselves(bench: Bench):
    after_chief = (
        f"while '\"down\"' not in open({str(bench.path / 'launcher.jsonl')!r}).read(): "
        "time.sleep(0.01)\n"
    )
    plan = bench.plan(SYNC, chief_0="", worker_0=after_chief, worker_1=after_chief + "sys.exit(9)")
    assert bench.run(plan, SLOW)[0] == 0
    assert bench.endings() == {
        "chief/0": "exit code 0",
        "worker/0": "exit code 0",
        "worker/1": "exit code 9",
    }


def test_preempted_replicas_get_time_to_save(bench: Bench):
    first = waits(bench, "worker-0", "worker-1") + "sys.exit(143)"
    plan = bench.plan(SYNC, chief_0=first, worker_0=SAVING, worker_1=SAVING)
    code, lines = bench.run(plan, Patience(grace_period_s=30, failure_s=0.1))
    assert code == 143
    assert sum(line.endswith("| saved") for line in lines) == 2
    assert any("chief/0 was preempted first: exit code 143" in line for line in lines)


def stopping(
    bench: Bench, script: str, patience: Patience = SLOW, **changes: object
) -> subprocess.Popen:
    """Starts a launcher whose chief runs the script, and waits until it is ready."""
    launcher = bench.start(
        dataclasses.replace(bench.plan(ONE, chief_0=script), **changes), patience
    )
    while "ready" not in launcher.stdout.readline():
        pass
    return launcher


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGTERM, signal.SIGHUP], 143),
        ([signal.SIGHUP, signal.SIGTERM, signal.SIGINT], 129),
        ([signal.SIGTERM, signal.SIGTERM], 143),
    ],
)
def test_signals_are_one_stop_request(bench: Bench, numbers: list[int], code: int):
    launcher = stopping(bench, SAVING)
    for number in numbers:
        launcher.send_signal(number)
        time.sleep(0.1)  # Or the kernel delivers them in an order of its own.
    assert "chief/0 | saved" in launcher.communicate()[0]
    assert launcher.returncode == code
    assert not bench.processes()


def test_signal_during_time_limit_saves(bench: Bench):
    launcher = stopping(bench, SAVING, timeout_s=2)
    while "time limit" not in launcher.stdout.readline():
        pass
    launcher.terminate()
    assert "chief/0 | saved" in launcher.communicate()[0]
    assert launcher.returncode == 124


@pytest.mark.parametrize(("number", "pause_s"), [(signal.SIGINT, 0.1), (signal.SIGTERM, 1.2)])
def test_repeated_signal_kills_at_once(bench: Bench, number: int, pause_s: float):
    launcher = stopping(bench, STUBBORN, Patience(grace_period_s=3600, **CALM))
    launcher.send_signal(number)
    assert "stopping" in launcher.stdout.readline()
    time.sleep(pause_s)
    launcher.send_signal(number)
    assert "but chief/0 had to be killed and may not have saved" in launcher.communicate()[0]
    assert launcher.returncode == 137


FAMILY = (
    "import subprocess;"
    "subprocess.Popen(['sleep', '60']);"
    "subprocess.Popen(['timeout', '60', 'sleep', '60']);"  # a process group of its own
    "subprocess.Popen(['sleep', '60'], start_new_session=True);"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
)


def test_nothing_outlives_killed_launcher(bench: Bench):
    temporary = "open(os.environ['TMPDIR'] + '/x', 'w');"
    launcher = bench.start(bench.plan(SYNC, chief_0=temporary + FAMILY, worker_0=FAMILY))
    wait_until(
        lambda: len(bench.processes()) == 3 + 2 * 4 and list(bench.path.glob("training-*/x"))
    )
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: not bench.processes() and not list(bench.path.glob("training-*")))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the death of a parent")
def test_replicas_die_with_launcher_without_guard(bench: Bench):
    launcher = bench.start(bench.plan(SYNC))
    guard_of(launcher).kill()
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: not bench.processes())


def test_descendants_of_finished_job_are_killed(bench: Bench):
    code, _ = bench.run(bench.plan(ONE, chief_0=FAMILY.replace("time.sleep(60)", "")))
    assert code == 0
    assert not bench.processes()


def test_without_pidfd_the_same_holds(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert bench.run(bench.plan(SYNC, worker_1="sys.exit(7)"))[0] == 7
    assert bench.run(bench.plan(PS, chief_0=""))[0] == 0


def test_replica_knows_nothing_of_outer_job(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    for name in (
        "TF_CONFIG",
        "CLUSTER_SPEC",
        "TRAINER_POOL_ROLES",
        "TRAINER_POOL_GPUS",
        "CLOUD_ML_JOB_ID",
    ):
        monkeypatch.setenv(name, "from above")
    script = "print('from above' in os.environ.values())"
    assert of("chief/0", bench.run(bench.plan(ONE, chief_0=script))[1]) == ["False"]


def test_bad_command_is_user_error(bench: Bench):
    plan = bench.plan(SYNC)
    missing = dataclasses.replace(plan.replicas[2], command=("no-such-program",))
    with pytest.raises(
        UserError, match=r"worker/1: cannot start: .*No such file .*no-such-program"
    ):
        bench.run(dataclasses.replace(plan, replicas=(*plan.replicas[:2], missing)))
    with pytest.raises(UserError, match=r"cannot write to .*/worker-0.log"):
        bench.run(dataclasses.replace(plan, log_dir=plan.replicas[1].log))
