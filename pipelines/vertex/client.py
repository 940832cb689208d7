"""Vertex AI Pipelines: runs of ours, which their labels tell from all others. All raise what `refusals` does."""

import json

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.google_cloud import OURS, credentials, refusals
from components.train.backends.attempts import Again
from pipelines.vertex.submission import Submission

_SERVICE = "Vertex AI"  # Messages begin with it.


def connect(project: str, location: str) -> None:
    """Has Google's clients work in that project and region, with the credentials of this machine."""
    aiplatform.init(project=project, location=location, credentials=credentials())


def send(submission: Submission, job_id: str, order: Again) -> str:
    """Begins an attempt of a run; returns its resource name. Google's client would make a bucket that is not there, this does not."""
    client = aiplatform.initializer.global_config.create_client(
        aiplatform.utils.PipelineJobClientWithOverride
    )
    with refusals(_SERVICE):
        request = v1.CreatePipelineJobRequest.from_json(
            json.dumps(submission.request(job_id, order))
        )
        return client.create_pipeline_job(request=request).name


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


def cancel(name: str) -> None:
    """Ends a run."""
    with refusals(_SERVICE):
        aiplatform.PipelineJob.get(name).cancel()


def custom_jobs(run: str) -> list[v1.CustomJob]:
    """Returns our training jobs of a run, the oldest first."""
    with refusals(_SERVICE):
        jobs = [
            job.gca_resource
            for job in aiplatform.CustomJob.list(filter=f'{OURS} AND display_name="{run}"')
        ]
    return sorted(jobs, key=lambda job: job.create_time)


def link(name: str) -> str:
    """Returns where the console shows a run."""
    _, project, _, location, _, run = name.split("/")
    return f"https://console.cloud.google.com/vertex-ai/locations/{location}/pipelines/runs/{run}?project={project}"
