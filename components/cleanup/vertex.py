"""Cancels the custom jobs that a run left on Vertex AI: they cost money until they end."""

from google.api_core.exceptions import GoogleAPICallError
from google.cloud import aiplatform
from google.cloud.aiplatform_v1 import JobState

from common.google_cloud import OURS

_LIVE = [JobState[f"JOB_STATE_{name}"] for name in ("QUEUED", "PENDING", "RUNNING", "PAUSED", "UPDATING")]


def cancel_jobs(project: str, location: str, run_id: str) -> list[str]:
    """Cancels the jobs that are ours, have the run's name and have not ended. Returns their resource names.

    All are tried before an ExceptionGroup has the reasons why some could not be cancelled.
    """
    of_run = f'{OURS} AND display_name="{run_id}"'
    jobs = aiplatform.CustomJob.list(filter=of_run, project=project, location=location)
    cancelled = []
    failures = []
    for job in jobs:
        if job.state not in _LIVE:
            continue
        try:
            job.cancel()
            cancelled.append(job.resource_name)
        except GoogleAPICallError as error:
            if job.state in _LIVE:  # else it ended by itself meanwhile
                failures.append(error)
    if failures:
        raise ExceptionGroup(f"jobs of run {run_id} that may still run and cost money", failures)
    return cancelled
