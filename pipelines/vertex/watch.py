"""Follows a run on Vertex AI: what its steps do, how far the training is, and what it came to.

job = follow(name, job_dir)    # the `PipelineJob` message, once the run has ended
"""

import datetime
import time
from collections.abc import Iterator
from typing import Any

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.errors import UserError
from common.google_cloud import LOGIN
from components.train.backends.vertex_client import expired, log_in_again
from pipelines.vertex.bucket import newest_step

POLL_S = 10.0
_ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}
# Of tasks that are groups of others, and of the run itself, nothing is told.
_GROUPS = ("exit-handler-", "condition-")


def follow(name: str, job_dir: str) -> v1.PipelineJob:
    """Tells what changes in a run, `projects/.../pipelineJobs/...`, until it has ended; returns it as it is then.

    That the network or Google Cloud fails meanwhile, or that the credentials expire, ends no run: it is told, and waited for.
    """
    states: dict[str, str] = {}
    told_step, silent = -1, ""
    while True:
        try:
            job = aiplatform.PipelineJob.get(name).gca_resource
            for step, state in _changes(job, states):
                say(f"{step}: {state}")
            if states.get("train") == "running" and (line := newest_step(job_dir)) and line["step"] != told_step:
                told_step = line["step"]
                say(f"train: {_progress(line)}")
            silent = ""
        except (exceptions.GoogleAPIError, GoogleAuthError, OSError, UserError) as error:
            if isinstance(error, exceptions.NotFound):
                raise UserError(f"{name} is not there any more") from None
            if silent != (silent := f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"):
                say(f"{silent}; the run goes on, and so does waiting for it{f' ({LOGIN})' if expired(error) else ''}")
            log_in_again(aiplatform.initializer.global_config.project)
        else:
            if not is_live(job):
                return job
        time.sleep(POLL_S)


def state_of(job: v1.PipelineJob) -> str:
    """`RUNNING`, `SUCCEEDED`, ..."""
    return job.state.name.removeprefix("PIPELINE_STATE_")


def is_live(job: v1.PipelineJob) -> bool:
    """Whether a run has not ended."""
    return state_of(job) not in _ENDED


def failed_steps(job: v1.PipelineJob) -> Iterator[tuple[str, v1.PipelineTaskDetail]]:
    """Each step that failed, by name."""
    for task in job.job_detail.task_details:
        if task.state.name == "FAILED" and not task.task_name.startswith(_GROUPS):
            yield _step(task.task_name), task


def _changes(job: v1.PipelineJob, states: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Steps whose state is another now, which `states` keeps."""
    for task in job.job_detail.task_details:
        if task.task_name.startswith((*_GROUPS, job.name.rpartition("/")[2])):
            continue
        step, state = _step(task.task_name), task.state.name.lower().replace("skipped", "from the cache")
        if state not in (states.get(step), "pending", "state_unspecified"):
            yield step, state
        states[step] = state


def _step(task: str) -> str:
    return "train" if task == "custom-training-job" else task


def _progress(line: dict[str, Any]) -> str:
    """A line of the chief's journal, for people."""
    parts = [f"step {line['step']:,}"]
    parts += [f"{line['examples_per_s']:,.0f} examples/s"] if line.get("examples_per_s") else []
    parts += [f"{name} {line[name]:.4g}" for name in ("loss", "accuracy", "auc") if isinstance(line.get(name), float)]
    return ", ".join(parts)


def say(text: str) -> None:
    """Prints a line with the time of day."""
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", flush=True)
