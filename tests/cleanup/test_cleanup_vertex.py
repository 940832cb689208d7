import project_states
import pytest
from google.cloud import aiplatform_v1 as v1
from kfp import dsl

from components.cleanup.component import cleanup


@pytest.fixture
def job(vertex):
    """Makes a custom job of a run in a state; returns its resource name."""

    def make(run, state, **labels):
        number = len(vertex.custom_jobs.items)
        custom = project_states.job(f"customJobs/{number}", run, labels or project_states.OURS | {"run": run}, True)
        custom.state = f"JOB_STATE_{state}"
        vertex.custom_jobs.items[custom.name] = custom
        return custom.name

    return make


@pytest.fixture
def cancel_jobs(vertex):
    from components.cleanup.project import cancel_jobs  # 3 s

    return cancel_jobs


def states(vertex, names):
    return [vertex.custom_jobs.items[name].state.name.removeprefix("JOB_STATE_") for name in names]


def test_the_live_jobs_of_the_run_are_cancelled_and_no_others(vertex, job, cancel_jobs):
    live = [job("r1", state) for state in ("QUEUED", "PENDING", "RUNNING", "PAUSED", "UPDATING")]
    ended = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "CANCELLING")
    past = [job("r1", state) for state in ended]
    live.append(job("r1", "RUNNING", managed_by="tfrecord-training"))  # of a schedule, which knows no run's name
    batch = v1.BatchPredictionJob(name=live[0].replace("customJobs", "batchPredictionJobs"), display_name="r1")
    batch.labels, batch.state = project_states.OURS, "JOB_STATE_RUNNING"
    vertex.batches.items[batch.name] = batch
    others = [job(run, "RUNNING") for run in ("r2", "r11")] + [job("r1", "RUNNING", managed_by="others")]
    assert cancel_jobs(vertex.project, vertex.location, "r1") == [*live, batch.name]
    assert batch.state.name == "JOB_STATE_CANCELLED"
    assert states(vertex, live) == ["CANCELLED"] * 6
    assert states(vertex, past) == list(ended)
    assert states(vertex, others) == ["RUNNING"] * 3
    assert cancel_jobs(vertex.project, vertex.location, "r1") == []


def test_a_job_that_cannot_be_cancelled_does_not_save_the_others(vertex, job, cancel_jobs):
    from google.api_core import exceptions

    names = [job("r1", "RUNNING") for _ in range(4)]
    cancel = vertex.custom_jobs.cancel

    def refuse(request, parent, id):
        if id == "0":
            raise exceptions.PermissionDenied("not you")
        if id == "1":
            vertex.custom_jobs.items[names[1]].state = 4  # it succeeds just now
        return cancel(request, parent, id)

    vertex.route("POST", "{parent}/customJobs/{id}:cancel", refuse)
    with pytest.raises(ExceptionGroup, match="jobs of run r1 that may still run") as failed:
        cancel_jobs(vertex.project, vertex.location, "r1")
    assert len(failed.value.exceptions) == 1
    assert states(vertex, names) == ["RUNNING", "SUCCEEDED", "CANCELLED", "CANCELLED"]


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_the_exit_handler_cancels_whatever_happened(vertex, job, state, capsys):
    name = job("r1", "RUNNING")
    status = dsl.PipelineTaskFinalStatus(
        state=state, pipeline_job_resource_name="", pipeline_task_name="", error_code=None, error_message=None
    )
    cleanup(run_id="r1", run_dir="", status=status, project=vertex.project, location=vertex.location)
    assert states(vertex, [name]) == ["CANCELLED"]
    assert name in capsys.readouterr().out
