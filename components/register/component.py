"""The pipeline's steps `register` and `promote`."""

from kfp import dsl


def register(
    job_dir: str,
    registry: str,
    name: str,
    run_id: str,
    cluster: str,
    image: str,
    evaluation: dsl.Input[dsl.Artifact],
) -> str:
    """Adds the model of a finished job to a registry. Returns the number of its version.

    If the run has a version already, nothing is added, and its number is returned. It is a
    UserError if the evaluation is of another model or rejects this one.
    """
    from components.register import register as step

    model_dir = f"{job_dir.rstrip('/')}/model"
    return step.register(
        model_dir=model_dir,
        evaluation=step.load_evaluation(evaluation.path, model_dir),
        registry=registry,
        name=name,
        run=run_id,
        cluster=cluster,
        image=image,
    )


def promote(registry: str, name: str, run_id: str, evaluation: dsl.Input[dsl.Artifact]) -> str:
    """Makes the version of this run the champion if its evaluation says so.

    Returns:
      What happened, in words.
    """
    import json
    import pathlib

    from components.register import register as step

    content = json.loads(pathlib.Path(evaluation.path).read_text(encoding="utf-8"))
    version = step.open_registry(registry).version_of(name, run_id)
    outcome = step.promote(evaluation=content, registry=registry, name=name, version=version)
    print(outcome)
    return outcome
