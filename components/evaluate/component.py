"""The pipeline's steps `evaluate` and `gate`."""

from kfp import dsl


def evaluate(
    job_dir: str,
    registry: str,
    name: str,
    evaluate_args: list[str],
    dataset: str,
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    confusion: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
) -> str:
    """Scores the exported model and the champion on the same records, and decides about the model.

    The metrics are those of the model's task. Classification adds a confusion matrix, and with two
    classes an ROC curve. `report` is the page and `summary` the same in a few lines of Markdown.
    `evaluation` is all of it as JSON; a copy goes to the job's directory, where those who wait for
    the run read it. `evaluate_args` are flags of `components.evaluate` beside those that the step
    itself sets.

    Returns:
      The exported model's directory, `<job_dir>/model`.

    Raises:
      UserError: If a flag is wrong, an input is missing or damaged, model, dataset and gate do not
        fit each other, or too few records are left to judge by.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    import json
    import pathlib
    import shutil
    import tempfile

    from common.quiet import import_keras
    from common.storage.files import write_text

    import_keras()
    from components.evaluate import evaluate as step
    from components.evaluate.options import Options
    from components.evaluate.report import summary as summarize

    job_dir = job_dir.rstrip("/")
    model_dir = f"{job_dir}/model"
    with tempfile.TemporaryDirectory() as output:
        known = {
            "model_dir": model_dir,
            "data_dir": dataset,
            "output": output,
            "registry": registry,
            "name": name,
        }
        content = step.evaluate(Options.parse(evaluate_args, "components.evaluate", **known))
        shutil.copyfile(f"{output}/{step.FILE}", evaluation.path)
        shutil.copyfile(f"{output}/{step.REPORT}", report.path)
    for metric, value in content["metrics"].items():
        if value is not None:
            metrics.log_metric(metric, value)
    if matrix := content["figures"].get("confusion"):
        confusion.log_confusion_matrix(content["class_names"], matrix)
    if curve := content["figures"].get("roc"):
        confusion.log_roc_curve(*map(list, zip(*curve, strict=True)))
    texts = {summary: summarize(content), metrics: json.dumps(content["metrics"])}
    # kfp takes a step as done only if all of its outputs exist.
    texts |= {confusion: ""}
    for artifact, text in texts.items():
        pathlib.Path(artifact.path).write_text(text, encoding="utf-8")
    write_text(f"{job_dir}/{step.FILE}", pathlib.Path(evaluation.path).read_text(encoding="utf-8"))
    print(texts[summary])
    return model_dir


def gate(evaluation: dsl.Input[dsl.Artifact]) -> str:
    """Returns the verdict of `evaluation.json`: `reject`, `register` or `promote`.

    It is printed, with its reasons.
    """
    import json
    import pathlib

    decision = json.loads(pathlib.Path(evaluation.path).read_text(encoding="utf-8"))["decision"]
    print(decision["verdict"], *decision["reasons"], sep="\n  ")
    return decision["verdict"]
