"""The shell of cloudbuild.yaml's steps that needs no container engine (tests/docker runs the rest)."""

import subprocess
from pathlib import Path

import pytest
import yaml

BUILD = yaml.safe_load((Path(__file__).parents[1] / "cloudbuild.yaml").read_text())
STEPS = {step["id"]: step for step in BUILD["steps"]}


def run_step(name: str, workspace: Path, **env: str) -> subprocess.CompletedProcess:
    """Runs a step's script as Cloud Build does: /bin/sh in the workspace, with the step's environment only."""
    assert set(env) == {setting.split("=")[0] for setting in STEPS[name]["env"]}
    return subprocess.run(
        ["/bin/sh", "-c", STEPS[name]["script"]], cwd=workspace, env=env, capture_output=True, text=True
    )


def test_good_settings_pass(tmp_path):
    assert run_step("settings", tmp_path, BUCKET="my-bucket.example_1", SUBMIT="true").returncode == 0


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"BUCKET": "", "SUBMIT": "false"}, "_BUCKET is ''"),
        ({"BUCKET": "gs://my-bucket", "SUBMIT": "false"}, "_BUCKET is 'gs://my-bucket'"),
        ({"BUCKET": "my-bucket", "SUBMIT": "True"}, "_SUBMIT is 'True'; allowed: true, false"),
    ],
)
def test_bad_settings_stop_the_build_before_it_costs_anything(tmp_path, settings, complaint):
    done = run_step("settings", tmp_path, **settings)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert all("settings" in STEPS[name]["waitFor"] for name in ("test", "build"))


@pytest.mark.parametrize(("submit", "dry"), [("true", False), ("false", True)])
def test_only_submit_true_submits(tmp_path, submit, dry):
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "image.txt").write_text("r/i@sha256:0\n")
    done = run_step("submit", tmp_path, PROJECT="p", LOCATION="europe-west4", BUCKET="b", SUBMIT=submit)
    expected = "pipelines/submit.py --image r/i@sha256:0 --project p --location europe-west4 --bucket gs://b"
    assert done.stdout.split() == expected.split() + ["--dry-run"] * dry


def test_nothing_is_pushed_before_the_tests_pass():
    assert STEPS["push"]["waitFor"] == ["test", "build"]
