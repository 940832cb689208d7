"""The pipeline's exit handler `cleanup`."""

from kfp import dsl


def cleanup(run_id: str, run_dir: str, project: str, location: str, status: dsl.PipelineTaskFinalStatus) -> None:
    """Stops what the run left running; after a success deletes its temporary files.

    On Vertex AI, where `project` and `location` say which, it has no `run_dir`: a directory on this machine.
    """
    if run_dir:
        from components.cleanup.cleanup import delete, stop_replicas, unneeded

        print("stopped replicas:", stop_replicas(run_dir) or "none")
        if status.state in ("SUCCEEDED", "COMPLETE"):  # of Vertex AI and kfp.local, and of Kubeflow Pipelines
            print("freed bytes:", delete(run_dir, unneeded(run_dir, temporary_only=True)))
    else:
        from components.cleanup.project import cancel_jobs

        print("cancelled jobs:", cancel_jobs(project, location, run_id) or "none")
