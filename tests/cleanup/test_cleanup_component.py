import os

import pytest

from pipelines.local.record import lock
from tests.cleanup.conftest import exit_handler, files


@pytest.mark.parametrize("is_evaluated", [False, True])
@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "RUNNING", "SUCCEEDED", "COMPLETE"])
def test_temporary_files_go_after_success(make_run, state, is_evaluated):
    run = make_run()
    if is_evaluated:
        (run / "job/evaluation.json").write_text("{}")
    before = files(run)
    driver = lock(run)  # The run has not ended.
    exit_handler(state, run.name, str(run))
    os.close(driver)
    gone = {name for name in before if name.startswith("tmp/") or ".partial/" in name}
    gone |= {name for name in before if name.endswith(".tmp")}
    # After a false condition, Kubeflow Pipelines says RUNNING.
    succeeded = state in ("SUCCEEDED", "COMPLETE") or (state == "RUNNING" and is_evaluated)
    left = before - gone | {"cleanup.jsonl"} if succeeded else before
    assert files(run) == left
