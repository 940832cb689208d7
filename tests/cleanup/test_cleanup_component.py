import os

import pytest
from kfp import dsl

from components.cleanup.component import cleanup
from pipelines.local.record import lock


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "RUNNING", "SUCCEEDED", "COMPLETE"])
def test_temporary_files_go_after_success_alone(make_run, files, state):
    run = make_run()
    before = files(run)
    driver = lock(run)  # the run is still going on
    status = dsl.PipelineTaskFinalStatus(
        state=state, pipeline_job_resource_name="", pipeline_task_name="", error_code=None, error_message=None
    )
    cleanup(run_id=run.name, run_dir=str(run), project="", location="", status=status)
    os.close(driver)
    temporary = {name for name in before if name.startswith("tmp/") or ".partial/" in name or name.endswith(".tmp")}
    after = files(run)
    assert after == (before - temporary | {"cleanup.jsonl"} if state in ("SUCCEEDED", "COMPLETE") else before)
