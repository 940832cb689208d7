"""The pipeline's exit handler `cleanup`."""

from kfp import dsl


def cleanup(
    run_id: str, run_dir: str, project: str, location: str, status: dsl.PipelineTaskFinalStatus
) -> None:
    """Stops what the run left running; after a success deletes its temporary files.

    On Vertex AI, where `project` and `location` say which, it has no `run_dir`: a directory on this
    machine, whose replicas have ended with their launcher.
    """
    if not run_dir:
        from components.cleanup.project import cancel_jobs

        print("cancelled jobs:", cancel_jobs(project, location, run_id) or "none")
    elif status.state in (
        "SUCCEEDED",
        "COMPLETE",
    ):  # of Vertex AI and kfp.local, and of Kubeflow Pipelines
        from components.cleanup.cleanup import delete, unneeded

        delete(run_dir, unneeded(run_dir, temporary_only=True))
