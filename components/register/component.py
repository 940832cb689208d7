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

    If the run has a version already, nothing is added, and its number is returned. The version
    keeps `cluster`, the cluster file as JSON or empty, and `image` if it has a digest.

    Raises:
      UserError: If the evaluation is of another model or rejects this one, or if the registry
        cannot take the model.
      ConnectionError: If Vertex AI or a store does not answer.
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
      What happened, in words, also if nothing was promoted. It is printed as well.

    Raises:
      UserError: If the run has registered no version, its files are gone, it does not answer as
        when it was judged, or the registry cannot be read or written.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    import json
    import pathlib

    from components.register import register as step

    content = json.loads(pathlib.Path(evaluation.path).read_text(encoding="utf-8"))
    version = step.open_registry(registry).version_of(name, run_id)
    outcome = step.promote(evaluation=content, registry=registry, name=name, version=version)
    print(outcome)
    return outcome
