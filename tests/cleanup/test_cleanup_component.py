import os

import pytest

from pipelines.local.record import lock
from tests.cleanup.conftest import exit_handler, files


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "RUNNING", "SUCCEEDED", "COMPLETE"])
def test_temporary_files_go_after_success(make_run, state):
    run = make_run()
    before = files(run)
    driver = lock(run)  # The run has not ended.
    exit_handler(state, run.name, str(run))
    os.close(driver)
    gone = {name for name in before if name.startswith("tmp/") or ".partial/" in name}
    gone |= {name for name in before if name.endswith(".tmp")}
    left = before - gone | {"cleanup.jsonl"} if state in ("SUCCEEDED", "COMPLETE") else before
    assert files(run) == left
