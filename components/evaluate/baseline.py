"""Baseline: an answer that needs no model, and that every candidate has to beat.

For images it is the mean of the training split's labels: the shares of its classes, or the mean of
its numbers. In a table, one column often predicts nearly everything; so for tables it is the best
rule over a single column (1R: Holte 1993, doi:10.1023/A:1022631118932), learnt on the training
split: it predicts for a record the mean label of the training records whose value of that column is
in the same category.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from common.manifest import Manifest
from components.evaluate.categories import Categories
from components.evaluate.eval_set import EvalSet

# A column with more than _MOST_VALUES distinct values is reduced to categories: numbers to _BINS
# ranges with about equally many training examples, texts to the most frequent ones and a last one
# for all others.
_MOST_VALUES, _BINS = 100, 10


def baseline(records: EvalSet) -> tuple[str, np.ndarray]:
    """Computes the baseline of a dataset and its answers to some records.

    For images, all answers are the same: the share of each class, or the mean of the labels. For a
    table, the answers are those of the rule over one column that ranks best on the training split.

    Args:
      records: The records to answer. What the baseline predicts is learnt from the training split
        of the same dataset.

    Returns:
      The baseline's name for reports, such as `majority class`, and its answers to all records in
      their order, [N, outputs].

    Raises:
      UserError: If the training split or the records' own is empty, or one of the dataset's files
        is missing or damaged.
      ConnectionError: If a store does not answer.
    """
    manifest, task, training = (
        records.manifest,
        records.task,
        dataclasses.replace(records, split="train"),
    )
    if not manifest.is_table:
        rule, sums = "majority class", np.array(manifest.split("train").class_histogram)
        if not manifest.class_names:
            rule = "mean of the training split"
            sums = np.concatenate(
                [
                    _targets(columns[manifest.label].numpy(), manifest)
                    for columns in training.batches()
                ]
            ).sum(axis=0)
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
    """Returns labels as rows of numbers, [N, k].

    Class labels become one-hot rows, so that the mean of rows is the share of each class.
    """
    return (
        np.eye(manifest.outputs)[labels]
        if manifest.class_names
        else labels.reshape(len(labels), -1)
    )


def _rule(values: np.ndarray, targets: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Learns a rule over one column: the mean of the targets in each category of its values.

    Categories are those of the class `Categories`: values, or ranges of a column with many numbers.
    A mean includes one more example that has the mean of all targets, and this is also the
    prediction for values of a category that the training split does not have.

    Args:
      values: The column's values in the training split, [N].
      targets: Rows of numbers to predict, [N, k].

    Returns:
      A function that takes other values of the column, [M], and returns predictions, [M, k].
    """
    categories = Categories(values, _MOST_VALUES, _BINS)
    places = categories.of(values)
    sums = np.zeros((len(categories), targets.shape[1]))
    np.add.at(sums, places, targets)
    counts = np.bincount(places, minlength=len(categories))[:, np.newaxis]
    # Each category gets one more example, with the mean of the whole split. A category without any
    # training examples then predicts that mean.
    means = (sums + targets.mean(axis=0)) / (counts + 1)
    return lambda others: means[categories.of(others)]
