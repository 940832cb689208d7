import project_states
import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1


@pytest.fixture
def job(vertex):
    """Makes a custom job of a run in a state; returns its resource name."""

    def make(run, state, **labels):
        number = len(vertex.custom_jobs.items)
        custom = project_states.job(
            f"customJobs/{number}", run, labels or project_states.OURS | {"run": run}, True
        )
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


def test_live_jobs_of_run_are_cancelled(vertex, job, cancel_jobs):
    live = [job("r1", state) for state in ("QUEUED", "PENDING", "RUNNING", "PAUSED", "UPDATING")]
    ended = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "CANCELLING")
    past = [job("r1", state) for state in ended]
    live.append(
        job("r1", "RUNNING", managed_by="tfrecord-training")
    )  # A schedule's jobs have no name of a run.
    batch = v1.BatchPredictionJob(
        name=live[0].replace("customJobs", "batchPredictionJobs"), display_name="r1"
    )
    batch.labels, batch.state = project_states.OURS, "JOB_STATE_RUNNING"
    vertex.batches.items[batch.name] = batch
    others = [
        job("r2", "RUNNING"),
        job("r11", "RUNNING"),
        job("r1", "RUNNING", managed_by="others"),
    ]
    assert cancel_jobs(vertex.project, vertex.location, "r1") == [*live, batch.name]
    assert batch.state.name == "JOB_STATE_CANCELLED"
    assert states(vertex, live) == ["CANCELLED"] * 6
    assert states(vertex, past) == list(ended)
    assert states(vertex, others) == ["RUNNING"] * 3
    assert cancel_jobs(vertex.project, vertex.location, "r1") == []


def test_failure_cancels_the_other_jobs(vertex, job, cancel_jobs):
    names = [job("r1", "RUNNING") for _ in range(4)]
    cancel = vertex.custom_jobs.cancel

    def refuse(request, parent, id):
        if id == "0":
            raise exceptions.PermissionDenied("not you")
        if id == "1":
            vertex.custom_jobs.items[
                names[1]
            ].state = "JOB_STATE_SUCCEEDED"  # It ends by itself just now.
        return cancel(request, parent, id)

    vertex.route("POST", "{parent}/customJobs/{id}:cancel", refuse)
    with pytest.raises(ExceptionGroup, match="jobs of run r1 that may still run") as failed:
        cancel_jobs(vertex.project, vertex.location, "r1")
    assert len(failed.value.exceptions) == 1
    assert states(vertex, names) == ["RUNNING", "SUCCEEDED", "CANCELLED", "CANCELLED"]


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_exit_handler_always_cancels(vertex, job, exit_handler, state, capsys):
    name = job("r1", "RUNNING")
    exit_handler(state, "r1", project=vertex.project, location=vertex.location)
    assert states(vertex, [name]) == ["CANCELLED"]
    assert name in capsys.readouterr().out
