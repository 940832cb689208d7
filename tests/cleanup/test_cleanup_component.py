import os

import pytest

from components.train.supervision.lock import holder
from pipelines.local.record import lock
from tests.cleanup.conftest import exit_handler, files
from tests.programs import start_python
from tests.train.train_fakes import wait_until


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


@pytest.mark.cluster
def test_exit_handler_stops_lost_training(digits, tmp_path, capsys):
    """On a server of Kubeflow Pipelines, a training may go on without the step that started it."""
    job = tmp_path / "runs/r1/job"
    flags = "-m components.train --cluster clusters/local.yaml -- --train-steps 100000"
    line = [*flags.split(), f"--data-dir={digits}", f"--job-dir={job}"]
    with start_python(*line, stdout=None) as training:
        wait_until(lambda: holder(str(job)))
        exit_handler("FAILED", "r1", runs=str(tmp_path / "runs"))
        assert training.wait() == 143
    exit_handler("FAILED", "r1", runs=str(tmp_path / "runs"))
    assert "nothing is stopped: " in capsys.readouterr().out
