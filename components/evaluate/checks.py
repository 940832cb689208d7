"""Checks that need no model: is a dataset fit for evaluation, and do metrics and columns exist?

check_splits(manifest)
check_metrics(options.limits, manifest.task, manifest.class_names or manifest.targets)
check_column("company", manifest)
"""

from collections.abc import Sequence

from common.errors import UserError, unknown
from common.manifest import MULTI_LABEL, REGRESSION, Manifest, Split
from components.evaluate.gate import Gate


def metric_names(task: str, names: Sequence[str]) -> set[str]:
    """Returns the names of the built-in metrics of a task.

    All tasks have `loss`. A regression has `rmse`, `mae`, `mse` and `r2`, and with several targets
    an `rmse_TARGET` for each. Other tasks have `accuracy`; `multi_label` and two classes have `auc`
    as well.

    Args:
      task: Task as manifests name it.
      names: Names of its classes or targets.
    """
    if task == REGRESSION:
        of_targets = {f"rmse_{name}" for name in names} if len(names) > 1 else set()
        return {"loss", "rmse", "mae", "mse", "r2"} | of_targets
    return {"loss", "accuracy"} | ({"auc"} if task == MULTI_LABEL or len(names) == 2 else set())


def check_metrics(gate: Gate, task: str, names: Sequence[str]) -> None:
    """Checks that a gate has thresholds only for built-in metrics of the task.

    A model with a task of the user's own may have other metrics; its gate is not to be checked
    here.

    Args:
      gate: The gate.
      task: Task as manifests name it.
      names: Names of its classes or targets.

    Raises:
      UserError: If a threshold, of all records or of a slice, is for an unknown metric.
    """
    known = metric_names(task, names)
    for thresholds in (gate.thresholds, *gate.slices.values()):
        for metric in thresholds:
            if metric not in known:
                raise unknown("metric of a threshold", metric, known)


def check_splits(manifest: Manifest) -> None:
    """Checks that the training and the test split can tell a good model from a constant answer.

    Labels are not compared for the task `multi_label`.

    Raises:
      UserError: If one of them is empty, or all of its examples have the same label.
    """
    for name in ("train", "test"):
        split = manifest.split(name)
        if label := _only_label(manifest, split):
            raise UserError(
                f"dataset {manifest.name!r}: all {split.examples:,} examples of split {name!r} "
                f"have {label}, so no model can be better than always answering that; convert "
                "data with several labels in each split (--test-fraction and --split-seed decide "
                "which records are in it)"
            )


def _only_label(manifest: Manifest, split: Split) -> str | None:
    """Returns the label that all examples of a split have, in words such as `class 'cat'`.

    None means that labels differ, that the manifest has no statistics of them, or that the task is
    `multi_label`, for which this is not checked. Of a regression with several targets, all have to
    be constant, and the first is returned.
    """
    if manifest.task == REGRESSION:
        summaries = [
            (split.summaries or {}).get(f"{manifest.label}.{name}") for name in manifest.targets
        ]
        means = [each.mean if each and each.min == each.max else None for each in summaries]
        return None if None in means else f"{manifest.label} {means[0]:g}"
    if manifest.task == MULTI_LABEL:
        return None
    classes = [
        name
        for name, count in zip(manifest.class_names, split.class_histogram, strict=True)
        if count
    ]
    return f"class {classes[0]!r}" if len(classes) == 1 else None


def check_column(name: str, manifest: Manifest) -> None:
    """Checks that metrics can be computed by the values of a column.

    Raises:
      UserError: If it is neither a column of a table nor the label of a classification.
    """
    known = {feature.name for feature in manifest.features if manifest.is_table} - {manifest.label}
    if manifest.class_names:
        known.add(manifest.label)
    if name not in known:
        raise unknown(f"column of slices, in dataset {manifest.name!r},", name, known)
