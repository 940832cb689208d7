"""What a model has to beat: an answer that needs no model, scored on the same records.

For images it is the mean of the training split's labels: the shares of its classes, the mean of its numbers. A table
often has one column that says nearly all; so for tables it is the best rule over a single column (1R: Holte 1993,
doi:10.1023/A:1022631118932), learnt on the training split: an example gets the mean of the labels of the training
examples in the same category of that column.
"""

import dataclasses

import numpy as np

from common.manifest import Manifest
from components.evaluate.eval_set import EvalSet

# Of a column with more values, numbers are cut into equally many training examples each, and the rarest texts are one.
_MOST_VALUES, _BINS = 100, 10


def baseline(records: EvalSet) -> tuple[str, np.ndarray]:
    """What it is, in words, and the answers to beat for the records in their order, [N, outputs]."""
    manifest, task, training = records.manifest, records.task, dataclasses.replace(records, split="train")
    if not manifest.is_table:
        rule, sums = "majority class", np.array(manifest.split("train").class_histogram)
        if not manifest.class_names:
            labels = [_targets(columns[manifest.label].numpy(), manifest) for columns in training.batches()]
            rule, sums = "mean of the training split", np.concatenate(labels).sum(axis=0)
        return rule, np.tile(sums / len(training), (len(records), 1))
    labels = training.columns[manifest.label]
    rules = {f.name: _Rule(training.columns[f.name], _targets(labels, manifest)) for f in manifest.inputs}
    seen = {name: task.measure(rule(training.columns[name]), labels) for name, rule in rules.items()}
    name = max(seen, key=lambda name: task.rank(seen[name]))
    return f"best single column, {name}", rules[name](records.columns[name])


def _targets(labels: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Labels as what a rule predicts means of, [N, k]: a class as a 1 in its place."""
    return np.eye(manifest.outputs)[labels] if manifest.class_names else labels.reshape(len(labels), -1)


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
