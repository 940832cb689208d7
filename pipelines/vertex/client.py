"""Vertex AI Pipelines: runs and schedules of ours, which their labels tell from all others. All raise what `refusals` does."""

import json
from typing import Any

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.google_cloud import OURS, credentials, is_ours, refusals
from components.train.backends.attempts import Again
from pipelines.vertex.submission import Submission

_SERVICE = "Vertex AI"  # Messages begin with it.


def connect(project: str, location: str) -> None:
    """Has Google's clients work in that project and region, with the credentials of this machine."""
    aiplatform.init(project=project, location=location, credentials=credentials())


def send(submission: Submission, job_id: str, order: Again) -> str:
    """Begins an attempt of a run; returns its resource name. Google's client would make a bucket that is not there, this does not."""
    client = _client(aiplatform.utils.PipelineJobClientWithOverride)
    with refusals(_SERVICE):
        request = v1.CreatePipelineJobRequest.from_json(json.dumps(submission.request(job_id, order)))
        return client.create_pipeline_job(request=request).name


def schedule(submission: Submission, order: Again, cron: str) -> str:
    """Has Vertex AI begin a run whenever `cron` says, one at a time; returns the schedule's resource name."""
    request = submission.request("scheduled", order)
    del request["pipelineJobId"]  # each run gets one
    body = {"displayName": submission.run, "cron": cron, "maxConcurrentRunCount": "1"}
    with refusals(_SERVICE):
        message = v1.Schedule.from_json(json.dumps({**body, "createPipelineJobRequest": request}))
        return _schedules().create_schedule(parent=request["parent"], schedule=message).name


def get(name: str) -> v1.PipelineJob:
    """Returns a run, `projects/.../pipelineJobs/...`, as it is now."""
    with refusals(_SERVICE):
        return aiplatform.PipelineJob.get(name).gca_resource


def runs(**labels: str) -> list[v1.PipelineJob]:
    """Returns runs of ours with these labels, the newest first."""
    terms = " AND ".join([OURS, *(f'labels.{name}="{value}"' for name, value in labels.items())])
    with refusals(_SERVICE):
        jobs = [job.gca_resource for job in aiplatform.PipelineJob.list(filter=terms)]
    return sorted(jobs, key=lambda job: job.create_time, reverse=True)


def schedules() -> list[v1.Schedule]:
    """Returns the schedules whose runs are ours."""
    with refusals(_SERVICE):
        pages = _schedules().list_schedules(parent=aiplatform.initializer.global_config.common_location_path())
        return [each for each in pages if is_ours(each.create_pipeline_job_request.pipeline_job.labels)]


def cancel(name: str) -> None:
    """Ends a run, or deletes a schedule; the runs that it has made go on."""
    with refusals(_SERVICE):
        if "/schedules/" in name:
            _schedules().delete_schedule(name=name).result()
        else:
            aiplatform.PipelineJob.get(name).cancel()


def custom_jobs(run: str) -> list[v1.CustomJob]:
    """Returns our training jobs of a run, the oldest first."""
    with refusals(_SERVICE):
        jobs = [job.gca_resource for job in aiplatform.CustomJob.list(filter=f'{OURS} AND display_name="{run}"')]
    return sorted(jobs, key=lambda job: job.create_time)


def link(name: str) -> str:
    """Returns where the console shows a run."""
    _, project, _, location, _, run = name.split("/")
    return f"https://console.cloud.google.com/vertex-ai/locations/{location}/pipelines/runs/{run}?project={project}"


def _schedules() -> Any:
    return _client(aiplatform.utils.ScheduleClientWithOverride)


def _client(kind: Any) -> Any:
    return aiplatform.initializer.global_config.create_client(client_class=kind)
