import os
import subprocess
import sys

import psutil
import pytest
from kfp import dsl

from components.cleanup.component import cleanup
from pipelines.local.record import lock

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "RUNNING", "SUCCEEDED", "COMPLETE"])
def test_replicas_are_stopped_and_temporary_files_go_after_a_success_alone(make_run, files, state):
    run = make_run()
    before = files(run)
    driver = lock(run)  # the run is still going on
    code = "print(flush=True); import time; time.sleep(60)"
    env = {**os.environ, "TRAINER_STATUS": str(run / "logs" / "chief-0.status.json")}
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, env=env) as replica:
        replica.stdout.readline()
        status = dsl.PipelineTaskFinalStatus(
            state=state, pipeline_job_resource_name="", pipeline_task_name="", error_code=None, error_message=None
        )
        cleanup(run_id=run.name, run_dir=str(run), project="", location="", status=status)
        assert not psutil.pid_exists(replica.pid)
    os.close(driver)
    temporary = {name for name in before if name.startswith("tmp/") or ".partial/" in name or name.endswith(".tmp")}
    after = files(run)
    assert after == (before - temporary | {"cleanup.jsonl"} if state in ("SUCCEEDED", "COMPLETE") else before)
