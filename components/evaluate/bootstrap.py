"""What chance does to figures of N records: the bootstrap (Efron & Tibshirani 1993, "An Introduction to the Bootstrap").

found = figures(task, {"candidate": ours, "champion": theirs}, labels)   # of records drawn anew, again and again
found["candidate"].intervals()["auc"]                                    # (0.912, 0.931)
p_value(0.012, found["candidate"].samples["auc"] - found["champion"].samples["auc"], margin=0.0)

All models get the same records in every sample, so that what they share (most of the noise: hard records) drops out of a
difference. The seed is fixed: equal answers give equal figures. scipy.stats.bootstrap would call for each metric and sample
anew, 2.5 s for the difference of one AUC over 10,000 records; metrics that take weights, of many samples in one call, take 0.4 s
for all.
"""

import dataclasses
import inspect
from collections.abc import Mapping

import numpy as np

from trainer.nn.tasks.base import Task

# So many samples; fewer where that would be more draws, for the time they take, and of tasks that cannot be given weights.
_SAMPLES, _MOST_DRAWS, _FEWEST = 1000, 200_000_000, 200
_BLOCK = 250_000  # draws at a time: 2 MB of weights, which a cache holds
_TAILS = (0.025, 0.975)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """A model's metrics on some records, and the same of records drawn anew from these.

    Attributes:
      metrics: Of all records.
      samples: Of as many records, drawn with replacement, [samples]; NaN where a sample does not define a metric.
      records: How many there are.
    """

    metrics: Mapping[str, float]
    samples: Mapping[str, np.ndarray]
    records: int

    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """The percentile interval of each metric, which holds 95 % of its samples; None if one does not define it."""
        ends = {name: np.quantile(values, _TAILS).tolist() for name, values in self.samples.items()}
        return {name: None if np.isnan(values).any() else (values[0], values[1]) for name, values in ends.items()}


def figures(task: Task, answers: Mapping[str, np.ndarray], labels: np.ndarray) -> dict[str, Figures]:
    """What models' answers for the same records are worth.

    There are 1,000 samples; from 200,000 records on fewer, and 200 of a task whose `measure` takes no weights.

    Args:
      task: Says what the metrics are.
      answers: By model, [N, outputs].
      labels: [N] or [N, targets].
    """
    n, weighs = len(labels), "weights" in inspect.signature(task.measure).parameters
    count = min(_SAMPLES, max(_FEWEST, _MOST_DRAWS // n)) if weighs else _FEWEST
    size = max(1, _BLOCK // n) if weighs else 1
    random, parts = np.random.default_rng(0), {who: [] for who in answers}
    for start in range(0, count, size):
        drawn = random.integers(n, size=(n, columns := min(size, count - start)))
        weights = _counted(drawn) if weighs else None
        for who, given in answers.items():
            if weighs:
                parts[who].append(task.measure(given, labels, weights))
            else:
                parts[who].append(task.measure(given[drawn[:, 0]], labels[drawn[:, 0]]))
    found = {}
    for who, given in answers.items():
        metrics, nothing = task.measure(given, labels), np.full(columns, np.nan)
        drawn = {name: [np.atleast_1d(part.get(name, nothing)) for part in parts[who]] for name in metrics}
        samples = {name: np.concatenate(blocks) for name, blocks in drawn.items()}
        found[who] = Figures(metrics=metrics, samples=samples, records=n)
    return found


def p_value(difference: float, samples: np.ndarray, margin: float) -> float:
    """How likely chance alone would show such a lead: one-sided, of a difference whose positive values are good.

    It is the greater of two estimates, which agree where the samples lie evenly about the difference: the share of samples
    without a lead of more than the margin, and the share of those that stray upwards from the difference by as much as that
    exceeds the margin. Either alone is too hopeful by turns: where few records tell the models apart, and where the
    distribution is skewed. Without a lead it is 1, and so of equal models; NaN counts against.

    Args:
      difference: Of all records.
      samples: The same of records drawn anew.
      margin: What the lead has to exceed.
    """
    if not difference > margin:
        return 1.0
    lost, strayed = ~(samples > margin), ~(samples - difference < difference - margin)
    return float((max(lost.sum(), strayed.sum()) + 1) / (len(samples) + 1))


def _counted(drawn: np.ndarray) -> np.ndarray:
    """How often each of N records was drawn: of positions [N, samples] the weights [N, samples]."""
    n, samples = drawn.shape
    places = (drawn * samples + np.arange(samples)).ravel()
    return np.bincount(places, minlength=drawn.size).reshape(n, samples).astype(np.float64)
