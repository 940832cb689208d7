"""Cancels the custom jobs that a run left on Vertex AI: they cost money until they end."""

from __future__ import annotations

from google.cloud import aiplatform_v1 as vertex

RUN_LABEL = "run"
_LIVE = ("QUEUED", "PENDING", "RUNNING", "PAUSED")


def cancel_jobs(project: str, location: str, run_id: str, client: vertex.JobServiceClient | None = None) -> list[str]:
    """Cancels the jobs that carry the run's label and have not ended. Returns their resource names.

    Args:
      project: Id of the project.
      location: A region, for example `us-central1`.
      run_id: Value of the label `run`.
      client: Made for the region when it is not given.
    """
    client = client or vertex.JobServiceClient(client_options={"api_endpoint": f"{location}-aiplatform.googleapis.com"})
    live = " OR ".join(f'state="JOB_STATE_{state}"' for state in _LIVE)
    request = vertex.ListCustomJobsRequest(
        parent=f"projects/{project}/locations/{location}", filter=f'labels.{RUN_LABEL}="{run_id}" AND ({live})'
    )
    names = [job.name for job in client.list_custom_jobs(request=request)]
    for name in names:
        client.cancel_custom_job(name=name)
    return names
