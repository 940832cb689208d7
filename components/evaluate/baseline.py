"""What a model has to beat: an answer that needs no model, scored on the same records.

For images it is the mean of the training split's labels: the shares of its classes, the mean of its
numbers. A table often has one column that says nearly all; so for tables it is the best rule over a
single column (1R: Holte 1993, doi:10.1023/A:1022631118932), learnt on the training split: an
example gets the mean of the labels of the training examples in the same category of that column.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from common.manifest import Manifest
from components.evaluate.categories import Categories
from components.evaluate.eval_set import EvalSet

# Of a column with more values, numbers are cut into equally many training examples each, and the
# rarest texts are one.
_MOST_VALUES, _BINS = 100, 10


def baseline(records: EvalSet) -> tuple[str, np.ndarray]:
    """Returns what the baseline is, in words, and its answers for the records in their order, [N, outputs]."""
    manifest, task, training = (
        records.manifest,
        records.task,
        dataclasses.replace(records, split="train"),
    )
    if not manifest.is_table:
        rule, sums = "majority class", np.array(manifest.split("train").class_histogram)
        if not manifest.class_names:
            labels = [
                _targets(columns[manifest.label].numpy(), manifest)
                for columns in training.batches()
            ]
            rule, sums = "mean of the training split", np.concatenate(labels).sum(axis=0)
        return rule, np.tile(sums / len(training), (len(records), 1))
    labels = training.columns[manifest.label]
    targets = _targets(labels, manifest)
    rules = {f.name: _rule(training.columns[f.name], targets) for f in manifest.inputs}
    scores = {
        name: task.measure(rule(training.columns[name]), labels) for name, rule in rules.items()
    }
    best = max(scores, key=lambda name: task.rank(scores[name]))
    return f"best single column, {best}", rules[best](records.columns[best])


def _targets(labels: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Returns labels as what a rule predicts means of, [N, k]: a class as a 1 in its place."""
    return (
        np.eye(manifest.outputs)[labels]
        if manifest.class_names
        else labels.reshape(len(labels), -1)
    )


def _rule(values: np.ndarray, targets: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Learns the means of the targets by the category of a column; returns what predicts them, [N, k], from its values."""
    categories = Categories(values, _MOST_VALUES, _BINS)
    places = categories.of(values)
    sums = np.zeros((len(categories), targets.shape[1]))
    np.add.at(sums, places, targets)
    counts = np.bincount(places, minlength=len(categories))[:, np.newaxis]
    # One example more, as in all of the split: a category that was never seen says nothing.
    means = (sums + targets.mean(axis=0)) / (counts + 1)
    return lambda others: means[categories.of(others)]
