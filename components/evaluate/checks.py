"""Checks, without a model, that a dataset has the metrics and columns that an evaluation asks for.

check_metrics(options.asked, manifest.task, manifest.class_names or manifest.targets)
check_column("company", manifest)
"""

from collections.abc import Sequence

from components.evaluate.gate_file import Gate
from trainer.base.errors import unknown
from trainer.base.manifest import MULTI_LABEL, REGRESSION, Manifest


def metric_names(task: str, names: Sequence[str]) -> set[str]:
    """Metrics of a task as manifests name it; `names` are those of its classes or targets."""
    if task == REGRESSION:
        of_targets = {f"rmse_{name}" for name in names} if len(names) > 1 else set()
        return {"loss", "rmse", "mae", "mse", "r2"} | of_targets
    return {"loss", "accuracy"} | ({"auc"} if task == MULTI_LABEL or len(names) == 2 else set())


def check_metrics(gate: Gate, task: str, names: Sequence[str]) -> None:
    """Refuses thresholds of metrics that the task does not have; a task of the user's own may have others."""
    known = metric_names(task, names)
    for thresholds in (gate.thresholds, *gate.slices.values()):
        for metric in thresholds:
            if metric not in known:
                raise unknown("metric of a threshold", metric, known)


def check_column(name: str, manifest: Manifest) -> None:
    """Refuses a slice by anything but a column of a table or, of classes, the label."""
    known = {feature.name for feature in manifest.features if manifest.is_table} - {manifest.label}
    if manifest.class_names:
        known.add(manifest.label)
    if name not in known:
        raise unknown(f"column of slices, in dataset {manifest.name!r},", name, known)
