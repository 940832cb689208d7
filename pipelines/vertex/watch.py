"""Follows a run on Vertex AI: the states of its steps, and the progress of its training.

job = follow(name, job_dir)    # the `PipelineJob` message, once the run has ended
"""

import contextlib
import datetime
import time
from collections.abc import Iterator
from typing import Any

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.documents import parse_json
from common.errors import UserError
from common.storage.files import list_folder, open_file
from components.train.backends.vertex_client import Outages
from pipelines.vertex import client

POLL_S = 10.0
_ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}
# States in which a job has ended, but for which the launcher of Google's components waits on.
_UNKNOWN = {"JOB_STATE_EXPIRED", "JOB_STATE_PARTIALLY_SUCCEEDED"}
_LAUNCHED = {"train": aiplatform.CustomJob, "model-batch-predict": aiplatform.BatchPredictionJob}
_TAIL_BYTES = 65_536


def follow(name: str, job_dir: str) -> v1.PipelineJob:
    """Prints what changes in a run until it has ended.

    While the network or Google Cloud fails, or while credentials have expired, it goes on waiting.
    It cancels a run that would never end, as Google's launcher waits for a job that has expired or
    succeeded partly.

    Args:
      name: Name of the run, `projects/.../pipelineJobs/...`.
      job_dir: Directory of the training job, whose journal has its progress.

    Returns:
      The run in its final state.

    Raises:
      RefusedError: If Google Cloud refuses to show the run.
    """
    outages = Outages(aiplatform.initializer.global_config.project, "the run", show)
    states: dict[str, str] = {}
    shown_step = -1
    while True:
        with outages.tolerated():
            job = client.get(name)
            for step, state in _changes(job, states):
                show(f"{step}: {state}")
            if state_of(job) == "RUNNING" and (unnoticed := _unnoticed_end(job, states)):
                show(f"{unnoticed}, for which its step would wait for ever; the run is cancelled")
                client.cancel(name)
            if (
                states.get("train") == "running"
                and (line := newest_step(job_dir))
                and line["step"] != shown_step
            ):
                shown_step = line["step"]
                show(f"train: {_progress(line)}")
            if not is_live(job):
                return job
        time.sleep(POLL_S)


def state_of(job: v1.PipelineJob) -> str:
    """Returns the state of a run in short form, such as `RUNNING` or `SUCCEEDED`."""
    return job.state.name.removeprefix("PIPELINE_STATE_")


def is_live(job: v1.PipelineJob) -> bool:
    """Returns whether a run has neither succeeded nor failed nor been cancelled yet."""
    return state_of(job) not in _ENDED


def steps(job: v1.PipelineJob) -> Iterator[tuple[str, v1.PipelineTaskDetail]]:
    """Yields name and details of each step, without groups of steps and the run itself.

    Google's component for training is called `train`, as on this machine.
    """
    for task in job.job_detail.task_details:
        if not task.task_name.startswith(
            ("exit-handler-", "condition-", job.name.rpartition("/")[2])
        ):
            yield "train" if task.task_name == "custom-training-job" else task.task_name, task


def newest_step(job_dir: str) -> dict[str, Any]:
    """Returns the newest line with the event `step` or `evaluation` in the chief's journals.

    The line is parsed from JSON. The journals are the files `journal-chief-0-*` of the job
    directory. The last 64 KiB of each are read, the newest journal first. The result is empty if
    there is no such line yet, or if the store refuses to show the journals.

    Raises:
      ConnectionError: If the store does not answer.
    """
    with contextlib.suppress(UserError):  # A journal may be replaced while it is read.
        journals = [file for file in list_folder(job_dir)[1] if "/journal-chief-0-" in file.path]
        for file in sorted(journals, key=lambda file: file.updated_s, reverse=True):
            with open_file(file, max(0, file.num_bytes - _TAIL_BYTES)) as tail:
                lines = tail.read().splitlines()
            for text in reversed(lines):
                # Lines at the ends may be cut off.
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    line = parse_json(text)
                    if line["event"] in ("step", "evaluation"):
                        return line
    return {}


def show(text: str) -> None:
    """Prints a text with the time of day before it."""
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", flush=True)


def _changes(job: v1.PipelineJob, states: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yields name and state of each step whose state has changed, unless it only waits.

    Args:
      job: The run.
      states: States by step at the last call; they are updated.
    """
    for step, task in steps(job):
        state = task.state.name.lower().replace("skipped", "from the cache")
        # A step that waits is not worth a line.
        if state not in (states.get(step), "pending", "state_unspecified"):
            yield step, state
        states[step] = state


def _unnoticed_end(run: v1.PipelineJob, states: dict[str, str]) -> str:
    """Returns step and state of a job of the run that has ended while its step waits on, or "".

    Args:
      run: The run.
      states: States of its steps.
    """
    for step, kind in _LAUNCHED.items():
        if states.get(step) == "running":
            for job in client.jobs(run.labels["run"], kind)[-1:]:
                if job.state.name in _UNKNOWN and job.create_time > run.create_time:
                    return f"{step}: {job.state.name.removeprefix('JOB_STATE_').lower()}"
    return ""


def _progress(line: dict[str, Any]) -> str:
    """Returns a line of the chief's journal as a text: step, speed, loss, accuracy and AUC.

    What the line lacks is left out, but for the step, which it must have.
    """
    parts = [f"step {line['step']:,}"]
    parts += [f"{line['examples_per_s']:,.0f} examples/s"] if line.get("examples_per_s") else []
    parts += [
        f"{name} {line[name]:.4g}"
        for name in ("loss", "accuracy", "auc")
        if isinstance(line.get(name), float)
    ]
    return ", ".join(parts)
