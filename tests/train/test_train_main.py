import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from components.train.__main__ import main

CLUSTERS = Path(__file__).parents[2] / "clusters"
LOCAL = ["--cluster", str(CLUSTERS / "local.yaml")]
DATA = ["--data-dir", "data", "--train-steps", "9"]


def test_process_dry_run_prints_plan(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    flags = [*DATA, "--job-dir", "jobs/a"]
    assert main(["--cluster", str(CLUSTERS / "local-ps.yaml"), "--dry-run", "--", *flags]) == 0
    plan = json.loads(capsys.readouterr().out)
    replicas = plan["replicas"]
    assert [f"{each['role']} {each['index']}" for each in replicas] == [
        "chief 0",
        "worker 0",
        "worker 1",
        "ps 0",
    ]
    command = [sys.executable, "-m", "trainer.task", *flags, "--strategy", "parameter_server"]
    assert all(each["command"] == command for each in replicas)
    assert replicas[2]["log"] == "jobs/a/replicas/worker-1.log"
    env = replicas[2]["env"]
    assert env == {
        "TF_CONFIG": env["TF_CONFIG"],
        "TRAINER_THREADS": env["TRAINER_THREADS"],
        "TRAINER_POOL_ROLES": "chief,worker,ps",
        "TRAINER_STATUS": str(tmp_path / "jobs/a/replicas/worker-1.status.json"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
    }
    assert len(set(re.findall(r"127\.0\.0\.1:\d+", json.dumps(plan)))) == 4
    assert not list(tmp_path.iterdir())


def test_log_dir_moves_logs_and_status(capsys: pytest.CaptureFixture):
    assert (
        main([*LOCAL, "--dry-run", "--log-dir", "logs", "--", *DATA, "--job-dir", "gs://bucket/a"])
        == 0
    )
    chief = json.loads(capsys.readouterr().out)["replicas"][0]
    assert chief["log"] == "logs/chief-0.log"
    assert chief["env"]["TRAINER_STATUS"] == os.path.abspath("logs/chief-0.status.json")


VERTEX = "--cluster clusters/vertex-sync.yaml --backend vertex --image i"
DATA_HERE = "-- --data-dir d --train-steps 9 --job-dir a"
DATA_THERE = "-- --data-dir gs://b/d --train-steps 9 --job-dir gs://b/a"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            "",
            "trainer flags, behind the '--': the following arguments are required: --data-dir, "
            "--job-dir",
        ),
        (DATA_THERE, "--job-dir is gs://b/a; add --log-dir"),
        (f"--job-dir a {DATA_HERE}", "--code and --job-dir here are for --command"),
        (f"{VERTEX} {DATA_THERE}", "a tag be moved; give REF@sha256:"),
        (f"{VERTEX}@sha256:0 {DATA_THERE}", "--project is missing"),
        (f"{VERTEX} --dry-run {DATA_HERE}", "--job-dir a: the replicas need a bucket; give gs://"),
        (
            f"--backend vertex --image i --dry-run {DATA_THERE}",
            "chief: Vertex needs a machine type",
        ),
        (
            f"{VERTEX} --dry-run -- --data-dir gs://b/d --job-dir gs://b/a",
            "give either --train-steps or --train-epochs",
        ),
        ("--command true", "add --job-dir DIR before the '--'"),
        ("--command true --job-dir a --code no/such", "--code no/such: no such directory"),
        ("--cluster BASIC_GPU --strict", "--strict allows no replacement"),
        (
            "--cluster STANDARD_1 --strategy mirrored --command true --job-dir a",
            "STANDARD_1: worker: mirrored has none",
        ),
    ],
)
def test_bad_arguments_are_refused(
    refused: Callable, monkeypatch: pytest.MonkeyPatch, arguments: str, error: str
):
    monkeypatch.chdir(CLUSTERS.parent)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    assert error in refused(main, *LOCAL, *arguments.split())


@pytest.mark.cluster
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_trainer_import_starts_no_thread():
    """A library's thread that does not block it lets the signal end the replica before anything is saved."""
    code = "import os, sys, trainer.task; sys.exit(len(os.listdir('/proc/self/task')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 1


@pytest.mark.cluster
def test_failure_is_noticed_without_sigchld(tmp_path: Path):
    line = [
        sys.executable,
        "-m",
        "components.train",
        *LOCAL,
        "--command",
        "false",
        "--max-restarts",
        "0",
    ]
    # A process inherits what its parent ignores.
    ignore = functools.partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
    assert subprocess.run([*line, "--job-dir", str(tmp_path)], preexec_fn=ignore).returncode == 1
