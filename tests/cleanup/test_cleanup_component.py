import os

import pytest

from pipelines.local.record import lock


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "RUNNING", "SUCCEEDED", "COMPLETE"])
def test_temporary_files_go_after_success(make_run, files, exit_handler, state):
    run = make_run()
    before = files(run)
    driver = lock(run)  # The run has not ended.
    exit_handler(state, run.name, run_dir=str(run))
    os.close(driver)
    temporary = {
        name
        for name in before
        if name.startswith("tmp/") or ".partial/" in name or name.endswith(".tmp")
    }
    assert files(run) == (
        before - temporary | {"cleanup.jsonl"} if state in ("SUCCEEDED", "COMPLETE") else before
    )
