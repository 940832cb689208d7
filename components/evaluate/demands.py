"""Makes all comparisons that a gate asks for: of the whole split, of its parts, and of what a model costs whoever serves it."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from components.evaluate.baseline import columns
from components.evaluate.comparing import reach
from components.evaluate.gate import Comparison
from components.evaluate.gate_file import Gate
from components.evaluate.score import Answers
from trainer.base.errors import UserError, unknown
from trainer.base.manifest import Manifest
from trainer.nn.tasks.base import Task

_MOST_VALUES = 100


def demands(
    gate: Gate,
    manifest: Manifest,
    data_dir: str,
    split: str,
    task: Task,
    answered: Answers,
    footprint: Mapping[str, Any],
) -> Iterator[Comparison]:
    """Thresholds, slices and bounds, by what a model has answered for a split, and its `components.evaluate.details.footprint`.

    A part of the split is judged by itself if it has the records for that, and defines the metric.

    Raises:
      UserError: If the gate names a metric or a column that there is not, or one with too many values.
    """
    metrics = task.measure(answered.answers, answered.labels)
    if missing := {name for asked in (gate.thresholds, *gate.slices.values()) for name in asked} - metrics.keys():
        raise UserError(
            f"a threshold of {min(missing)}: split {split!r} of dataset {manifest.name!r} gives no such metric; it has "
            f"{', '.join(metrics)}"
        )
    for metric, threshold in gate.thresholds.items():
        yield reach("threshold", metric, metrics[metric], threshold, task, len(answered.labels))
    for column, asked in gate.slices.items():
        values = _values(manifest, data_dir, split, answered, column)
        for value in np.unique(values):
            part = answered.of(values == value)
            metrics, count = task.measure(part.answers, part.labels), len(part.labels)
            for metric, threshold in asked.items():
                of = f" of {column} {value} ({count:,} records)"
                if count >= gate.slice_records and metric in metrics:
                    yield reach("slice", metric, metrics[metric], threshold, task, count, of=of)
                else:
                    words = f"{metric}{of} is not judged: " + (
                        f"it takes {gate.slice_records}" if metric in metrics else "they do not define it"
                    )
                    yield Comparison(who="slice", passed=True, words=words, metric=metric, records=count)
    if gate.max_latency_ms:
        yield _bound("latency", footprint["latency_ms"]["1"]["median"], gate.max_latency_ms, "ms")
    if gate.max_size_mb:
        yield _bound("size", footprint["bytes"] / 1e6, gate.max_size_mb, "MB")


def _values(manifest: Manifest, data_dir: str, split: str, answered: Answers, column: str) -> np.ndarray:
    """A column's values in words of the records that were answered, [N]; the classes are one."""
    named = manifest.class_names and column == manifest.label
    known = {feature.name for feature in manifest.features if manifest.is_table and feature.name != manifest.label}
    if not named and column not in known:
        classes = [manifest.label] if manifest.class_names else []
        raise unknown(f"column of slices, in dataset {manifest.name!r},", column, [*known, *classes])
    if named:
        values = np.array(manifest.class_names)[answered.labels]
    else:
        values = columns(manifest, data_dir, split)[column][answered.records]
    if (count := len(np.unique(values))) > _MOST_VALUES:
        raise UserError(f"slices.{column}: {count:,} different values; {_MOST_VALUES} can be looked at one by one")
    return np.array([v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in values.tolist()])


def _bound(what: str, value: float, most: float, unit: str) -> Comparison:
    words = f"{what} {value:.4g} {unit} is {'within' if value <= most else 'over'} the bound {most:.4g} {unit}"
    return Comparison(who="cost", passed=value <= most, words=words, metric=what, candidate=value, threshold=most)
