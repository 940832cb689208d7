"""What a model has to beat: an answer that needs no model, scored on the same records.

For images it is the most frequent class of the training split. A table often has one column that says nearly all; so
for tables it is the best rule over a single column (1R: Holte 1993, doi:10.1023/A:1022631118932), learnt on the
training split: an example gets the class shares of the training examples in the same category of that column.
"""

from typing import Any

import numpy as np

from components.evaluate.score import measure
from trainer.base.manifest import Manifest
from trainer.data import records

MAJORITY = "majority class"
# Of a column with more values, numbers are cut into equally many training examples each, and the rarest texts are one.
_MOST_VALUES, _BINS = 100, 10


def decisive(manifest: Manifest) -> str:
    """The metric that models are judged by: `auc` for tables with two classes, else `accuracy`."""
    return "auc" if manifest.is_table and len(manifest.class_names) == 2 else "accuracy"


def baseline(manifest: Manifest, data_dir: str, split: str) -> dict[str, Any]:
    """The metrics of the answer to beat, and in words what it is: `rule`."""
    histogram = np.asarray(manifest.split("train").class_histogram)
    prior = histogram / histogram.sum()
    if not manifest.is_table:
        labels = np.repeat(np.arange(len(prior)), manifest.split(split).class_histogram)
        return {"rule": MAJORITY, **measure(np.tile(prior, (len(labels), 1)), labels)}
    training, columns = (_columns(manifest, data_dir, name) for name in ("train", split))
    rules = {f.name: _Rule(training[f.name], training[manifest.label], prior) for f in manifest.inputs}
    metric = decisive(manifest)
    seen = {name: measure(rule(training[name]), training[manifest.label])[metric] for name, rule in rules.items()}
    name = max(seen, key=seen.get)
    return {"rule": f"best single column, {name}", **measure(rules[name](columns[name]), columns[manifest.label])}


def _columns(manifest: Manifest, data_dir: str, split: str) -> dict[str, np.ndarray]:
    """The columns of a split by name, [N] each, verified."""
    records.verify(manifest, data_dir, split)
    return {name: column.numpy() for name, column in records.resident(manifest, data_dir, split).items()}


class _Rule:
    """Class shares by the category of one column."""

    def __init__(self, values: np.ndarray, labels: np.ndarray, prior: np.ndarray) -> None:
        distinct, counts = np.unique(values, return_counts=True)
        self._is_cut = len(distinct) > _MOST_VALUES and values.dtype != object
        if self._is_cut:
            self._keys = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1]))
        else:
            self._keys = np.sort(distinct[np.argsort(-counts, kind="stable")[:_MOST_VALUES]])
        categories, classes = self._categories(values), len(prior)
        sums = np.bincount(categories * classes + labels, minlength=(len(self._keys) + 1) * classes)
        # One example more, as in all of the split: a category that was never seen says nothing.
        sums = sums.reshape(-1, classes) + prior
        self._shares = sums / sums.sum(axis=1, keepdims=True)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Probabilities [N, classes]."""
        return self._shares[self._categories(values)]

    def _categories(self, values: np.ndarray) -> np.ndarray:
        if self._is_cut:
            return np.searchsorted(self._keys, values, side="right")
        at = np.minimum(np.searchsorted(self._keys, values), len(self._keys) - 1)
        return np.where(self._keys[at] == values, at, len(self._keys))
