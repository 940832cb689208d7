from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
from kfp import dsl

from components.cleanup.component import cleanup
from pipelines.record import hold

pytestmark = pytest.mark.cluster


@pytest.fixture
def end(make_run):
    """Runs the exit handler in a run that is still going on, with a replica left behind; returns the run."""

    def handle(state):
        run = make_run()
        driver = hold(run)
        line = [
            sys.executable,
            "-S",
            "-c",
            "print(flush=True); import time; time.sleep(60)",
            "trainer.task",
            "--job-dir",
        ]
        with subprocess.Popen([*line, str(run / "job")], stdout=subprocess.PIPE) as replica:
            replica.stdout.readline()
            status = dsl.PipelineTaskFinalStatus(
                state=state, pipeline_job_resource_name="", pipeline_task_name="", error_code=None, error_message=None
            )
            cleanup(run_id=run.name, run_dir=str(run), job_dir=str(run / "job"), project="", location="", status=status)
            assert not psutil.pid_exists(replica.pid)
        os.close(driver)
        return run

    return handle


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED"])
def test_after_a_failure_replicas_are_stopped_and_all_evidence_stays(end, make_run, files, state):
    before = files(make_run("like it"))
    assert files(end(state)) == {name.replace("like it", "r1") for name in before}


def test_after_a_success_replicas_are_stopped_and_only_temporary_files_go(end, make_run, files):
    before = {name.replace("like it", "r1") for name in files(make_run("like it"))}
    after = files(end("SUCCEEDED"))
    gone = {name for name in before if name.startswith("tmp/") or ".partial/" in name or name.endswith(".tmp")}
    assert before - after == gone != set()
    assert after - before == {"cleanup.jsonl"}
