from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from components.train.__main__ import main
from trainer.errors import UserError

CLUSTERS = Path(__file__).parents[2] / "clusters"


def dry_run(capsys: pytest.CaptureFixture, cluster: str, *args: str):
    assert main(["--cluster", str(CLUSTERS / f"{cluster}.yaml"), "--dry-run", *args]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("flags", [["--job-dir", "jobs/a"], ["--job-dir=jobs/a"], ["--job_dir", "jobs/a"]])
def test_process_dry_run_prints_the_plan(capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch, flags: list[str]):
    monkeypatch.chdir(tmp_path)
    plan = dry_run(capsys, "local-ps", "--", *flags, "--train-steps", "9")
    assert [(replica["role"], replica["index"]) for replica in plan["replicas"]] == [
        ("chief", 0),
        ("worker", 0),
        ("worker", 1),
        ("ps", 0),
    ]
    command = [sys.executable, "-m", "trainer.task", *flags, "--train-steps", "9", "--strategy", "parameter_server"]
    assert all(replica["command"] == command for replica in plan["replicas"])
    assert plan["replicas"][2]["log"] == "jobs/a/replicas/worker-1.log"
    assert len(set(re.findall(r"127\.0\.0\.1:\d+", json.dumps(plan)))) == 4
    assert not list(tmp_path.iterdir())


def test_log_dir_moves_logs_and_status_files(capsys: pytest.CaptureFixture):
    plan = dry_run(capsys, "local", "--log-dir", "logs", "--", "--job-dir", "gs://bucket/a")
    assert plan["replicas"][0]["log"] == "logs/chief-0.log"
    assert plan["replicas"][0]["env"]["TRAINER_STATUS"] == "logs/chief-0.status.json"


def test_vertex_dry_run_prints_the_pools(capsys: pytest.CaptureFixture):
    args = ["--backend", "vertex", "--image", "image", "--", "--job-dir", "gs://bucket/a"]
    pools = dry_run(capsys, "vertex-sync", *args)
    machine = {"machine_type": "n1-standard-8", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1}
    assert pools == [
        {
            "machine_spec": machine,
            "replica_count": replicas,
            "container_spec": {
                "image_uri": "image",
                "command": ["python", "-m", "trainer.task"],
                "args": ["--job-dir", "gs://bucket/a", "--strategy", "multi_worker_mirrored"],
                "env": [{"name": "TRAINER_POOL_ROLES", "value": "chief,worker"}],
            },
        }
        for replicas in (1, 3)
    ]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--", "--train-steps", "9"], "--job-dir is missing among the trainer flags"),
        (["--", "--job-dir"], "--job-dir is missing among the trainer flags"),
        ([], "--job-dir is missing among the trainer flags"),
        (["--", "--job-dir", "gs://bucket/a"], "--job-dir is gs://bucket/a; add --log-dir"),
        (["--", "--job-dir", "a", "--strategy", "mirrored"], "--strategy mirrored: the cluster file says one_device"),
        (
            ["--backend", "vertex", "--image", "i"],
            "only plans for Vertex: add --dry-run, or submit with python pipelines",
        ),
        (["--backend", "vertex", "--dry-run"], "add --image"),
        (["--backend", "vertex", "--dry-run", "--image", "i"], "chief: Vertex needs a machine type"),
    ],
)
def test_arguments_that_cannot_work_are_user_errors(args: list[str], says: str):
    with pytest.raises(UserError, match=re.escape(says)):
        main(["--cluster", str(CLUSTERS / "local.yaml"), *args])


def test_command_line_tells_a_user_error_in_one_line_with_code_2():
    command = [sys.executable, "-m", "components.train", "--cluster", "no/such.yaml", "--", "--job-dir", "a"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=CLUSTERS.parent)
    assert done.returncode == 2
    assert re.fullmatch(r"error: unknown cluster file 'no/such.yaml'.*\n", done.stderr)


def test_trainer_really_runs_and_its_exit_code_is_ours(capfd: pytest.CaptureFixture, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(CLUSTERS.parent)
    cluster = str(CLUSTERS / "local.yaml")
    assert main(["--cluster", cluster, "--", "--job-dir", str(tmp_path / "job"), "--no-such-flag", "1"]) == 2
    output = capfd.readouterr().out
    assert "chief/0 | " in output
    assert "chief/0 failed first: exit code 2" in output
