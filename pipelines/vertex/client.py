"""Client of Vertex AI Pipelines. Labels tell runs of this program from all others.

All functions but `connect` and `link` raise what `common.google_cloud.refusals` does: UserError if
a request is refused, ConnectionError if Vertex AI does not answer.
"""

import json
from typing import Any

from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1

from common.google_cloud import OURS, credentials, refusals
from components.train.backends.attempts import Again
from pipelines.vertex.submission import Submission

_SERVICE = "Vertex AI"  # Error messages begin with it.


def connect(project: str, location: str) -> None:
    """Sets project, region and credentials for all of Google's clients in this process.

    Raises:
      UserError: If this machine has no credentials.
    """
    aiplatform.init(project=project, location=location, credentials=credentials())


def send(submission: Submission, job_id: str, order: Again) -> str:
    """Starts an attempt of a run.

    Google's own function would make a bucket that does not exist; this one does not.

    Args:
      submission: The run.
      job_id: Id of the new pipeline job.
      order: Machines and time limit of the attempt.

    Returns:
      The resource name of the pipeline job.

    Raises:
      RefusedError: If Vertex AI refuses the request.
      UserError: If the credentials are not valid.
      ConnectionError: If Vertex AI does not answer; the job may nevertheless have been created.
    """
    client = aiplatform.initializer.global_config.create_client(
        aiplatform.utils.PipelineJobClientWithOverride
    )
    with refusals(_SERVICE):
        request = v1.CreatePipelineJobRequest.from_json(
            json.dumps(submission.request(job_id, order))
        )
        return client.create_pipeline_job(request=request).name


def get(name: str) -> v1.PipelineJob:
    """Returns the present state of a run, given its name `projects/.../pipelineJobs/...`.

    Raises:
      UserError: If Vertex AI refuses it, for example because there is no such run.
      ConnectionError: If Vertex AI does not answer.
    """
    with refusals(_SERVICE):
        return aiplatform.PipelineJob.get(name).gca_resource


def runs(**labels: str) -> list[v1.PipelineJob]:
    """Returns this program's runs that have all these labels, the newest first.

    They are all runs in the project and region of `connect`, also those that have ended.

    Raises:
      UserError: If Vertex AI refuses the request.
      ConnectionError: If Vertex AI does not answer.
    """
    terms = " AND ".join([OURS, *(f'labels.{name}="{value}"' for name, value in labels.items())])
    with refusals(_SERVICE):
        jobs = [job.gca_resource for job in aiplatform.PipelineJob.list(filter=terms)]
    return sorted(jobs, key=lambda job: job.create_time, reverse=True)


def cancel(name: str) -> None:
    """Cancels a run, given its name `projects/.../pipelineJobs/...`; does not wait for its end.

    Raises:
      UserError: If Vertex AI refuses it.
      ConnectionError: If Vertex AI does not answer.
    """
    with refusals(_SERVICE):
        aiplatform.PipelineJob.get(name).cancel()


def jobs(run: str, kind: Any = aiplatform.CustomJob) -> list[Any]:
    """Returns this program's jobs of all attempts of a run, the oldest first.

    They are messages of Vertex AI's API, such as `v1.CustomJob`, from the project and region of
    `connect`.

    Args:
      run: Name of the run, which is the display name of its jobs.
      kind: Class of Google's client, `CustomJob` for training or `BatchPredictionJob`.

    Raises:
      UserError: If Vertex AI refuses the request.
      ConnectionError: If Vertex AI does not answer.
    """
    with refusals(_SERVICE):
        matching = [
            job.gca_resource for job in kind.list(filter=f'{OURS} AND display_name="{run}"')
        ]
    return sorted(matching, key=lambda job: job.create_time)


def link(name: str) -> str:
    """Returns the console's address of a run, given its name `projects/.../pipelineJobs/...`."""
    _, project, _, location, _, run = name.split("/")
    return (
        f"https://console.cloud.google.com/vertex-ai/locations/{location}/pipelines/runs/{run}"
        f"?project={project}"
    )
