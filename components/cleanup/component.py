"""The pipeline's exit handler `cleanup`."""

from kfp import dsl


def cleanup(
    run_id: str,
    run_dir: str,
    train_args: list[str],
    job_dir: str,
    run_folder: str,
    project: str,
    location: str,
    status: dsl.PipelineTaskFinalStatus,
) -> None:
    """Stops what the run left running, or deletes its temporary files after a success.

    On Vertex AI, `project` and `location` are given, and jobs of the run are cancelled. On this
    machine, `run_dir` is given. Replicas have ended with their launcher there, so only files are
    left; a run also counts as a success if it has evaluated its model and has not failed.
    Elsewhere, the training is stopped if it goes on without its launcher; `train_args`, `job_dir`
    and `run_folder` are those of the steps `train` and `locate`. A UserError is only printed there.

    Raises:
      ExceptionGroup: If jobs on Vertex AI could not be cancelled.
      GoogleAPICallError: If these cannot be listed.
      ConnectionError: If the training elsewhere cannot be stopped, as its cluster does not answer.
    """
    import os

    if project:
        from components.cleanup.project import cancel_jobs

        print("cancelled jobs:", cancel_jobs(project, location, run_id) or "none")
        return
    if not run_dir:
        from common.errors import UserError
        from components.train.__main__ import BACKENDS, parse

        try:
            args = parse(train_args)
            backend = BACKENDS[args.backend]
            backend(backend.Options.of(args)).cancel(
                f"{job_dir}/{run_folder}/job" if run_folder else job_dir
            )
        except UserError as error:
            print(f"nothing is stopped: {error}")
        return
    states = ["SUCCEEDED", "COMPLETE"]  # The second word is that of Kubeflow Pipelines.
    # Its steps stay RUNNING after a success if the last condition was false, but also if a step was
    # lost. A run that has evaluated its model has no further use for temporary files.
    if os.path.exists(f"{run_dir}/job/evaluation.json"):
        states.append("RUNNING")
    if status.state in states:
        from components.cleanup.cleanup import delete, unneeded

        delete(run_dir, unneeded(run_dir, temporary_only=True))
