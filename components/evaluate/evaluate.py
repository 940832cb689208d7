"""Evaluates a candidate, and the champion on the same records, and writes what was found."""

import json
from typing import Any

from etils import epath

from components.evaluate import gate, report
from components.evaluate.baseline import baseline
from components.evaluate.options import Options
from components.evaluate.score import Answers, measure, predict_split
from components.register.register import open_registry
from components.register.registry import CHAMPION
from trainer.base import provenance
from trainer.base.errors import UserError
from trainer.base.files import tree_digest, write_text
from trainer.base.manifest import Manifest
from trainer.nn.models import registry
from trainer.nn.tasks.base import Task

FILE = "evaluation.json"
REPORT = "report.html"


def evaluate(options: Options) -> dict[str, Any]:
    """Scores the model and writes `evaluation.json` and `report.html` to `options.output`.

    Returns:
      The content of `evaluation.json`: every metric, and every figure of the decision. The same `fingerprint` and
      `split` are the same records, and what is registered must be what has the `model_digest`.

    Raises:
      UserError: If an input is missing or does not fit, or the output cannot be written.
    """
    model_dir, data_dir, split = options.model_dir, options.data_dir, options.split
    manifest = Manifest.load(data_dir)
    task = registry.task(provenance.task_of(model_dir), manifest)
    candidate, classes = predict_split(model_dir, data_dir, split, task), len(manifest.class_names)
    score = measure(candidate, task, classes)
    metrics, metric, thresholds = score["metrics"], task.ranked_by(score["metrics"]), options.thresholds
    if missing := thresholds.keys() - metrics.keys():
        raise UserError(
            f"a threshold of {min(missing)}: split {split!r} of dataset {manifest.name!r} gives no such metric; it has "
            f"{', '.join(name for name in metrics if name != 'examples')}"
        )
    found = baseline(manifest, data_dir, split, task)
    champion, other = (
        _champion(options.registry, options.name, data_dir, split, task) if options.registry else (None, None)
    )
    if champion:
        champion["metrics"] = other and measure(other, task, classes)["metrics"]
    evaluation = {
        **score,
        "model_dir": model_dir,
        "model_digest": tree_digest(model_dir),
        "dataset": manifest.name,
        "fingerprint": manifest.fingerprint,
        "split": split,
        "task": manifest.task,
        "class_names": list(manifest.class_names),
        "baseline": found,
        "metric": metric,
        "thresholds": thresholds,
        "champion": champion,
        "decision": gate.decide(
            metrics, found, metric=metric, better=task.better, thresholds=thresholds, champion=champion
        ),
    }
    directory = epath.Path(options.output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / REPORT, report.page(evaluation))
        write_text(directory / FILE, json.dumps(evaluation, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror or error}") from None
    return evaluation


def _champion(
    registry: str, name: str, data_dir: str, split: str, task: Task
) -> tuple[dict[str, Any] | None, Answers | None]:
    """The champion's version, and what it answers for these records or why one that was made for other data does not."""
    store = open_registry(registry)
    version = store.alias(name, CHAMPION)
    if version is None:
        return None, None
    try:
        return {"version": version, "incomparable": ""}, predict_split(
            store.model_dir(name, version), data_dir, split, task
        )
    except UserError as error:
        print(f"the champion, version {version}, cannot be compared: {error}")
        return {"version": version, "incomparable": str(error)}, None
