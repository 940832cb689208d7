import project_states
import pytest
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1

from tests.cleanup.conftest import exit_handler
from tests.cloud.collection import resource

RUN = project_states.OURS | {"run": "r1"}


@pytest.fixture
def job(vertex):
    """Makes a custom job of a run in a state; returns its resource name."""

    def make(state, run="r1", labels=RUN):
        number = len(vertex.custom_jobs.items)
        custom = project_states.job(f"customJobs/{number}", run, labels, True)
        custom.state = f"JOB_STATE_{state}"
        vertex.custom_jobs.items[custom.name] = custom
        return custom.name

    return make


@pytest.fixture
def cancel_jobs(vertex):
    from components.cleanup.project import cancel_jobs  # 3 s

    return lambda: cancel_jobs(vertex.project, vertex.location, "r1")


def states(vertex, names):
    return [vertex.custom_jobs.items[name].state.name.removeprefix("JOB_STATE_") for name in names]


def test_live_jobs_of_run_are_cancelled(vertex, job, cancel_jobs):
    live = [job(state) for state in ("QUEUED", "PENDING", "RUNNING", "PAUSED", "UPDATING")]
    ended = ["SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "CANCELLING"]
    past = [job(state) for state in ended]
    # A schedule's jobs have no name of a run.
    live.append(job("RUNNING", labels=project_states.OURS))
    batch = v1.BatchPredictionJob(
        name=live[0].replace("customJobs", "batchPredictionJobs"), display_name="r1"
    )
    batch.labels, batch.state = project_states.OURS, "JOB_STATE_RUNNING"
    vertex.batches.items[batch.name] = batch
    others = [job("RUNNING", "r2"), job("RUNNING", "r11"), job("RUNNING", labels={"run": "r1"})]
    assert cancel_jobs() == [*live, batch.name]
    assert batch.state.name == "JOB_STATE_CANCELLED"
    assert states(vertex, live) == ["CANCELLED"] * 6 and states(vertex, past) == ended
    assert states(vertex, others) == ["RUNNING"] * 3
    assert cancel_jobs() == []


def test_failure_cancels_the_other_jobs(vertex, job, cancel_jobs):
    names = [job("RUNNING") for _ in range(4)]
    cancel = vertex.custom_jobs.cancel

    def refuse(request):
        if resource(request) == names[0]:
            raise exceptions.PermissionDenied("not you")
        if resource(request) == names[1]:  # It ends by itself just now.
            vertex.custom_jobs.items[names[1]].state = "JOB_STATE_SUCCEEDED"
        return cancel(request)

    vertex.route("POST", "{parent}/customJobs/{id}:cancel", refuse)
    with pytest.raises(ExceptionGroup, match="jobs of run r1 that may still run") as failed:
        cancel_jobs()
    assert len(failed.value.exceptions) == 1
    assert states(vertex, names) == ["RUNNING", "SUCCEEDED", "CANCELLED", "CANCELLED"]


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_exit_handler_always_cancels(vertex, job, state, capsys):
    name = job("RUNNING")
    exit_handler(state, "r1", vertex=vertex)
    assert states(vertex, [name]) == ["CANCELLED"] and name in capsys.readouterr().out
