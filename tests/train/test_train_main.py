import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import UserError
from components.train.__main__ import main

CLUSTERS = Path(__file__).parents[2] / "clusters"
DATA = ["--data-dir", "data", "--train-steps", "9"]
VERTEX = ["--cluster", str(CLUSTERS / "vertex-sync.yaml"), "--backend", "vertex", "--image", "i", "--dry-run", "--"]


def dry_run(capsys: pytest.CaptureFixture, cluster: str, *args: str):
    assert main(["--cluster", str(CLUSTERS / f"{cluster}.yaml"), "--dry-run", *args]) == 0
    return json.loads(capsys.readouterr().out)


def test_process_dry_run_prints_plan(capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--job-dir", "jobs/a", "--data-dir", "data", "--train-steps", "9"]
    plan = dry_run(capsys, "local-ps", "--", *flags)
    found = [f"{replica['role']} {replica['index']}" for replica in plan["replicas"]]
    assert found == ["chief 0", "worker 0", "worker 1", "ps 0"]
    command = [sys.executable, "-m", "trainer.task", *flags, "--strategy", "parameter_server"]
    assert all(replica["command"] == command for replica in plan["replicas"])
    assert plan["replicas"][2]["log"] == "jobs/a/replicas/worker-1.log"
    env = {"TRAINER_POOL_ROLES": "chief,worker,ps", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
    env["TRAINER_STATUS"] = str(tmp_path / "jobs/a/replicas/worker-1.status.json")
    given = plan["replicas"][2]["env"]
    assert given == env | {name: given[name] for name in ("TF_CONFIG", "TRAINER_THREADS")}
    assert len(set(re.findall(r"127\.0\.0\.1:\d+", json.dumps(plan)))) == 4
    assert not list(tmp_path.iterdir())


def test_log_dir_moves_logs_and_status_files(capsys: pytest.CaptureFixture):
    plan = dry_run(capsys, "local", "--log-dir", "logs", "--", *DATA, "--job-dir", "gs://bucket/a")
    assert plan["replicas"][0]["log"] == "logs/chief-0.log"
    assert plan["replicas"][0]["env"]["TRAINER_STATUS"] == os.path.abspath("logs/chief-0.status.json")


OWN = ["--job-dir", "a", "--command"]
TIER = ["--cluster", "STANDARD_1", "--command", "true", "--job-dir", "a"]
# By what is said, the arguments behind `--cluster clusters/local.yaml`.
REFUSED: dict[str, list[str]] = {
    "trainer flags, behind the '--': the following arguments are required: --data-dir, --job-dir": [],
    "--job-dir is gs://bucket/a; add --log-dir": ["--", *DATA, "--job-dir", "gs://bucket/a"],
    "--code and --job-dir here are for --command": ["--job-dir", "a", "--", *DATA],
    "a tag be moved; give REF@sha256:": [*VERTEX[:6], "--", *DATA, "--job-dir", "gs://b/a"],
    "--project is missing": [*VERTEX[:5], "i@sha256:0", "--", *DATA, "--job-dir", "gs://b/a"],
    "--job-dir a: the replicas need a bucket; give gs://": [*VERTEX, *DATA, "--job-dir", "a"],
    "chief: Vertex needs a machine type": ["--backend", *VERTEX[3:], *DATA, "--job-dir", "gs://b/a"],
    # What the trainer would refuse is refused before there is a job.
    "give either --train-steps or --train-epochs": [*VERTEX, "--job-dir", "gs://b/a", "--data-dir", "gs://b/d"],
    # Programs of one's own.
    "add --job-dir DIR before the '--'": ["--command", "python x"],
    "--code no/such: no such directory": [*OWN, "python x", "--code", "no/such"],
    "--strict allows no replacement": ["--cluster", "BASIC_GPU", "--strict"],
    # Strategies that contradict the flags or the pools.
    "STANDARD_1: worker: mirrored has none; remove worker, or write 'strategy: multi_worker_mirrored'": [
        *TIER,
        "--strategy",
        "mirrored",
    ],
}


@pytest.mark.parametrize(("says", "args"), REFUSED.items())
def test_bad_arguments_are_user_errors(capsys: pytest.CaptureFixture, says: str, args: list[str]):
    with pytest.raises(UserError, match=re.escape(says)):
        main(["--cluster", str(CLUSTERS / "local.yaml"), *args])
    assert not capsys.readouterr().out


def test_user_error_is_one_line_and_code_2(refused):
    error = refused(main, "--cluster", "no/such.yaml", "--", "--job-dir", "a")
    assert error.startswith("error: unknown cluster file 'no/such.yaml'")


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_trainer_starts_no_thread_before_it_can_block_sigterm():
    """A library's thread that does not block it lets the signal end the replica before anything is saved."""
    code = "import os, sys, trainer.task; sys.exit(len(os.listdir('/proc/self/task')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1


@pytest.mark.cluster
def test_failure_is_seen_without_sigchld(tmp_path: Path):
    cluster, job = str(CLUSTERS / "local.yaml"), str(tmp_path / "job")
    line = [sys.executable, "-m", "components.train", "--cluster", cluster, "--job-dir", job, "--command", "false"]
    # A process inherits what its parent ignores.
    ignore = functools.partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
    assert subprocess.run([*line, "--max-restarts", "0"], preexec_fn=ignore).returncode == 1


@pytest.mark.cluster
def test_trainer_runs_and_its_exit_code_is_ours(capfd: pytest.CaptureFixture, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(CLUSTERS.parent)
    cluster = str(CLUSTERS / "local.yaml")
    flags = ["--data-dir", str(tmp_path), "--job-dir", str(tmp_path / "job"), "--train-steps", "9"]
    assert main(["--cluster", cluster, "--", *flags]) == 2
    output = capfd.readouterr().out
    assert "chief/0 | error: " in output
    assert "chief/0 failed first: exit code 2; it would fail again" in output
