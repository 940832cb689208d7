"""What a model has to beat: an answer that needs no model, scored on the same records.

For images it is the mean of the training split's labels: the shares of its classes, the mean of its numbers. A table
often has one column that says nearly all; so for tables it is the best rule over a single column (1R: Holte 1993,
doi:10.1023/A:1022631118932), learnt on the training split: an example gets the mean of the labels of the training
examples in the same category of that column.
"""

import numpy as np

from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.nn.tasks.base import Task

# Of a column with more values, numbers are cut into equally many training examples each, and the rarest texts are one.
_MOST_VALUES, _BINS = 100, 10


def baseline(manifest: Manifest, data_dir: str, split: str, task: Task) -> tuple[str, np.ndarray]:
    """What it is, in words, and the answers to beat for the records of a split in their order, [N, outputs]."""
    if not manifest.is_table:
        mean = _targets(_labels(manifest, data_dir, "train"), manifest).mean(axis=0)
        rule = "majority class" if manifest.class_names else "mean of the training split"
        return rule, np.tile(mean, (manifest.split(split).examples, 1))
    training = columns(manifest, data_dir, "train")
    targets = _targets(training[manifest.label], manifest)
    rules = {f.name: _Rule(training[f.name], targets) for f in manifest.inputs}
    seen = {name: task.measure(rule(training[name]), training[manifest.label]) for name, rule in rules.items()}
    name = max(seen, key=lambda name: task.rank(seen[name]))
    return f"best single column, {name}", rules[name](columns(manifest, data_dir, split)[name])


def _targets(labels: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Labels as what a rule predicts means of, [N, k]: a class as a 1 in its place."""
    return np.eye(manifest.outputs)[labels] if manifest.class_names else labels.reshape(len(labels), -1)


def _labels(manifest: Manifest, data_dir: str, split: str, counted: np.ndarray | None = None) -> np.ndarray:
    """Those of a split that count; classes of all of it, in any order, without reading a record."""
    if manifest.class_names and (counted is None or counted.all()):
        return np.repeat(np.arange(manifest.outputs), manifest.split(split).class_histogram)
    labels = np.concatenate([b[manifest.label].numpy() for b in records.batches(manifest, data_dir, split, 512)])
    return labels if counted is None else labels[counted]


def columns(manifest: Manifest, data_dir: str, split: str) -> dict[str, np.ndarray]:
    """The columns of a split by name, [N] each, verified."""
    records.verify(manifest, data_dir, split)
    return {name: column.numpy() for name, column in records.resident(manifest, data_dir, split).items()}


class _Rule:
    """Means of the targets by the category of one column."""

    def __init__(self, values: np.ndarray, targets: np.ndarray) -> None:
        distinct, counts = np.unique(values, return_counts=True)
        self._is_cut = len(distinct) > _MOST_VALUES and values.dtype != object
        if self._is_cut:
            self._keys = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1]))
        else:
            self._keys = np.sort(distinct[np.argsort(-counts, kind="stable")[:_MOST_VALUES]])
        categories, places = self._categories(values), len(self._keys) + 1
        sums = np.stack([np.bincount(categories, weights=column, minlength=places) for column in targets.T], axis=1)
        # One example more, as in all of the split: a category that was never seen says nothing.
        self._means = (sums + targets.mean(axis=0)) / (np.bincount(categories, minlength=places)[:, np.newaxis] + 1)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """What it says, [N, k]."""
        return self._means[self._categories(values)]

    def _categories(self, values: np.ndarray) -> np.ndarray:
        if self._is_cut:
            return np.searchsorted(self._keys, values, side="right")
        at = np.minimum(np.searchsorted(self._keys, values), len(self._keys) - 1)
        return np.where(self._keys[at] == values, at, len(self._keys))
