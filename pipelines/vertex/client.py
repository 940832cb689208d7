"""What is asked of Vertex AI Pipelines: runs and schedules of ours, which their labels tell from all others."""

import json
from typing import Any

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.google_cloud import OURS, is_ours
from components.train.backends.vertex_client import google_errors_as_user_errors
from pipelines.vertex.submission import Submission


def send(submission: Submission, job_id: str) -> str:
    """Begins a run. Returns its resource name; Google's client would make a bucket that is not there, this does not."""
    with google_errors_as_user_errors():
        request = v1.CreatePipelineJobRequest.from_json(json.dumps(submission.request(job_id)))
        return _client(aiplatform.utils.PipelineJobClientWithOverride).create_pipeline_job(request=request).name


def schedule(submission: Submission, cron: str) -> str:
    """Has Vertex AI begin a run whenever `cron` says, one at a time. Returns the schedule's resource name."""
    request = submission.request("scheduled")
    del request["pipelineJobId"]  # each run gets one
    made = {"displayName": submission.run, "cron": cron, "maxConcurrentRunCount": "1"}
    with google_errors_as_user_errors():
        asked = v1.Schedule.from_json(json.dumps({**made, "createPipelineJobRequest": request}))
        return _schedules().create_schedule(parent=request["parent"], schedule=asked).name


def runs(**labels: str) -> list[v1.PipelineJob]:
    """Runs of ours with these labels, the newest first."""
    terms = " AND ".join([OURS, *(f'labels.{name}="{value}"' for name, value in labels.items())])
    with google_errors_as_user_errors():
        found = aiplatform.PipelineJob.list(filter=terms)
        return sorted((each.gca_resource for each in found), key=lambda job: job.create_time, reverse=True)


def schedules() -> list[v1.Schedule]:
    """The schedules whose runs are ours."""
    with google_errors_as_user_errors():
        found = _schedules().list_schedules(parent=aiplatform.initializer.global_config.common_location_path())
        runs = ((each, each.create_pipeline_job_request.pipeline_job) for each in found)
        return [each for each, run in runs if is_ours(run.labels)]


def cancel(name: str) -> None:
    """Ends a run, `projects/.../pipelineJobs/...`, or deletes a schedule; the runs that it has made go on."""
    with google_errors_as_user_errors():
        if "/schedules/" in name:
            _schedules().delete_schedule(name=name).result()
        else:
            aiplatform.PipelineJob.get(name).cancel()


def custom_jobs(run: str) -> list[v1.CustomJob]:
    """Our training jobs of a run, the oldest first."""
    with google_errors_as_user_errors():
        jobs = aiplatform.CustomJob.list(filter=f'{OURS} AND display_name="{run}"')
        return sorted((job.gca_resource for job in jobs), key=lambda job: job.create_time)


def link(name: str) -> str:
    """Where the console shows a run."""
    _, project, _, location, _, run = name.split("/")
    return f"https://console.cloud.google.com/vertex-ai/locations/{location}/pipelines/runs/{run}?project={project}"


def _schedules() -> Any:
    return _client(aiplatform.utils.ScheduleClientWithOverride)


def _client(kind: Any) -> Any:
    return aiplatform.initializer.global_config.create_client(client_class=kind)
