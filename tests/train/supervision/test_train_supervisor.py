import dataclasses
import os
import signal
import time

import pytest
from train_fakes import EVALUATED, ONE, PS, SLOW, SYNC, of, wait_until

from tests.errors import user_error

pytestmark = pytest.mark.cluster

STUBBORN = (
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)
# Writes `saved` half a second after its first SIGTERM.
SAVING = (
    "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print('saved'), sys.exit(143)));"
    "print('ready', flush=True); time.sleep(60)"
)
# Ends some while after another replica.
LATER = "wait_for('\"down\"', 'launcher.jsonl'); "


def test_output_is_shown_in_whole_lines(bench):
    last = b"caf\xc3\xa9 \xff\n\n10%\r20%\rdone\r\n"
    script = f"""
for i in range(400):
    os.write(1, b"%d-" % i)
    os.write(2, b"x" * 300 + b"\\n")
os.write(1, {last!r} + b"y" * 200_000)
"""
    code, lines = bench.run(SYNC, chief_0=script, worker_0=script, worker_1="", **SLOW)
    assert code == 0
    expected = [f"{i}-{'x' * 300}" for i in range(400)]
    expected += ["café \ufffd", "", "10%", "20%", "done"]
    for name in ("chief/0", "worker/0"):
        shown = of(name, lines)
        assert shown[:405] == expected
        assert "".join(shown[405:]) == "y" * 200_000


def test_failure_stops_others_and_is_reported(bench):
    failing = "wait_for('ready', 'logs/chief-0.log')\nfor i in range(30): print(i)\nsys.exit(3)"
    code, lines = bench.run(SYNC, chief_0=STUBBORN, worker_1=failing, grace_period_s=3600)
    assert code == 3
    assert bench.endings()[0] == "SIGKILL"
    why = "exit code 3; no restart after errors is left (max_restarts: 0)"
    log = bench.path / "logs" / "worker-1.log"
    assert sum("failed first" in line for line in lines) == 1
    assert lines[-21] == f"launcher | worker/1 failed first: {why}; log: {log}; its last lines:"
    assert lines[-20:] == [f"launcher |   {i}" for i in range(10, 30)]


def test_blame_follows_order_of_death(bench):
    launcher = bench.start(SYNC)
    wait_until(lambda: len(bench.starts()) == 3)
    pids = {event["replica"]: event["pid"] for event in bench.events("up")}
    launcher.send_signal(signal.SIGSTOP)
    # In neither the order of start nor that of ids.
    for name in ("worker/0", "worker/1", "chief/0"):
        os.kill(pids[name], signal.SIGKILL)
        time.sleep(0.05)
    launcher.send_signal(signal.SIGCONT)
    assert "worker/0 failed first: SIGKILL" in launcher.communicate()[0]
    assert launcher.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("cluster", "changes", "endings"),
    [
        (PS, SLOW, ["SIGTERM"] * 2),
        (EVALUATED, SLOW | {"evaluator_0": LATER}, ["exit code 0"]),
        (SYNC, {"worker_0": ""}, ["exit code 0", "SIGTERM"]),
        (
            SYNC,
            SLOW | {"worker_0": LATER, "worker_1": LATER + "sys.exit(9)"},
            ["exit code 0", "exit code 9"],
        ),
    ],
)
def test_chief_success_ends_others(bench, cluster, changes, endings):
    assert bench.run(cluster, chief_0="", **changes)[0] == 0
    assert bench.endings() == ["exit code 0", *endings]


def test_preempted_replicas_get_time_to_save(bench):
    first = "wait_for('ready', 'logs/worker-0.log', 'logs/worker-1.log'); sys.exit(143)"
    scripts = {"chief_0": first, "worker_0": SAVING, "worker_1": SAVING}
    code, lines = bench.run(SYNC, **scripts, grace_period_s=30)
    assert code == 143
    assert sum(line.endswith("| saved") for line in lines) == 2
    assert any("chief/0 was preempted first: exit code 143" in line for line in lines)


def stopping(bench, script):
    """Starts a launcher whose chief runs the script, and waits until it is ready."""
    launcher = bench.start(ONE, chief_0=script, grace_period_s=3600)
    next(line for line in launcher.stdout if "ready" in line)
    return launcher


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGHUP, signal.SIGTERM, signal.SIGINT], 129),
        ([signal.SIGTERM, signal.SIGTERM], 143),
    ],
)
def test_signals_are_one_stop_request(bench, numbers, code):
    launcher = stopping(bench, SAVING)
    for number in numbers:
        launcher.send_signal(number)
        time.sleep(0.1)  # Or the kernel delivers them in an order of its own.
    assert "chief/0 | saved" in launcher.communicate()[0]
    assert launcher.returncode == code


@pytest.mark.parametrize(("number", "pause_s"), [(signal.SIGINT, 0.1), (signal.SIGTERM, 1.2)])
def test_repeated_signal_kills_at_once(bench, number, pause_s):
    launcher = stopping(bench, STUBBORN)
    launcher.send_signal(number)
    assert "stopping" in launcher.stdout.readline()
    time.sleep(pause_s)
    launcher.send_signal(number)
    assert "but chief/0 had to be killed and may not have saved" in launcher.communicate()[0]
    assert launcher.returncode == 137


def test_signal_after_success_keeps_it(bench):
    """Workers may go on for a while when the chief is done."""
    launcher = bench.launch(SYNC, chief_0="", **SLOW)
    next(line for line in launcher.stdout if "chief/0 ended" in line)
    launcher.send_signal(signal.SIGINT)
    assert "told to stop by SIGINT" in launcher.communicate()[0]
    assert launcher.returncode == 0


FAMILY = (
    "import subprocess;"
    "subprocess.Popen(['sleep', '60']);"
    "subprocess.Popen(['timeout', '60', 'sleep', '60']);"  # a process group of its own
    "subprocess.Popen(['sleep', '60'], start_new_session=True);"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
)


def test_nothing_outlives_killed_launcher(bench):
    family = f"open(os.environ['TMPDIR'] + '/x', 'w'); {FAMILY} time.sleep(60)"
    launcher = bench.start(SYNC, chief_0=family, worker_0=family)
    wait_until(
        lambda: len(bench.processes()) == 3 + 2 * 4 and list(bench.path.glob("training-*/x"))
    )
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: not bench.processes() and not list(bench.path.glob("training-*")))


def test_descendants_of_finished_job_are_killed(bench):
    assert bench.run(ONE, chief_0=FAMILY)[0] == 0
    assert not bench.processes()


def test_replica_knows_nothing_of_outer_job(bench, monkeypatch):
    for name in ("TF_CONFIG", "CLUSTER_SPEC", "TRAINER_POOL_GPUS", "CLOUD_ML_JOB_ID"):
        monkeypatch.setenv(name, "from above")
    script = "sys.exit('from above' in os.environ.values())"
    assert bench.run(ONE, chief_0=script)[0] == 0


def test_bad_command_is_user_error(bench):
    *others, last = bench.plan(SYNC)[0].replicas
    missing = dataclasses.replace(last, command=("no-such-program",))
    with user_error(r"worker/1: cannot start: .*no-such-program"):
        bench.run(SYNC, replicas=(*others, missing))
    with user_error(r"cannot write to .*/worker-1.log"):
        bench.run(SYNC, log_dir=last.log)
