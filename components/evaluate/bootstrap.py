"""What chance does to figures of N records: the bootstrap (Efron & Tibshirani 1993, "An Introduction to the Bootstrap").

found = bootstrap(task, {"candidate": ours, "champion": theirs}, labels)   # of records drawn anew, again and again
found["candidate"].intervals()["auc"]                                    # (0.912, 0.931)

All models get the same records in every sample, so that what they share (most of the noise: hard records) drops out of a
difference. The seed is fixed: equal answers give equal figures. scipy.stats.bootstrap would call for each metric and sample
anew, 2.5 s for the difference of one AUC over 10,000 records; metrics that take weights, of many samples in one call, take
0.4 s for all.
"""

import dataclasses
import inspect
from collections.abc import Mapping

import numpy as np

from trainer.nn.tasks.base import Task

# So many samples; fewer where that would be more draws, for the time they take, and of tasks that cannot be given weights.
_SAMPLES, _MOST_DRAWS, _FEWEST = 1000, 50_000_000, 200
# Draws at a time, 8 MB of weights, that a cache may hold; but some samples, for scores are sorted anew each time.
_BLOCK, _AT_ONCE = 1_000_000, 4
_TAILS = (0.025, 0.975)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """A model's metrics on some records, and the same of as many records drawn from these with replacement."""

    metrics: Mapping[str, float]
    samples: Mapping[str, np.ndarray]  # [samples]; NaN where a sample does not define the metric
    records: int

    @property
    def told(self) -> dict[str, float]:
        """The metrics, and over how many `examples` they are."""
        return {**self.metrics, "examples": self.records}

    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """Of each metric the percentile interval with 95 % of the samples; None if one does not define it."""
        return {
            name: tuple(np.quantile(values, _TAILS).tolist()) if np.isfinite(values).all() else None
            for name, values in self.samples.items()
        }


def bootstrap(task: Task, answers: Mapping[str, np.ndarray], labels: np.ndarray) -> dict[str, Figures]:
    """What the answers of each model, [N, outputs], for the same records are worth, whose labels are [N] or [N, targets].

    There are 1,000 samples; from 50,000 records on fewer, and 200 of a task whose `measure` takes no weights.
    """
    n, weighs = len(labels), "weights" in inspect.signature(task.measure).parameters
    count = min(_SAMPLES, max(_FEWEST, _MOST_DRAWS // n)) if weighs else _FEWEST
    size = max(_AT_ONCE, _BLOCK // n) if weighs else 1
    random, parts = np.random.default_rng(0), {who: [] for who in answers}
    for start in range(0, count, size):
        drawn = random.integers(n, size=(n, width := min(size, count - start)))
        places = (drawn * width + np.arange(width)).ravel()
        weights = np.bincount(places, minlength=n * width).reshape(n, width).astype(np.float64)
        for who, given in answers.items():
            weighed = (given, labels, weights) if weighs else (given[drawn[:, 0]], labels[drawn[:, 0]])
            parts[who].append((width, task.measure(*weighed)))
    found = {}
    for who, given in answers.items():
        metrics = task.measure(given, labels)
        drawn = {m: [np.broadcast_to(part.get(m, np.nan), width) for width, part in parts[who]] for m in metrics}
        samples = {name: np.concatenate(blocks) for name, blocks in drawn.items()}
        found[who] = Figures(metrics=metrics, samples=samples, records=n)
    return found


def p_value(difference: float, samples: np.ndarray, margin: float) -> float:
    """How likely chance alone would show a lead, of a difference whose positive values are good, of more than a margin.

    It is the greater of two estimates, which agree where the samples lie evenly about the difference: the share of samples
    without such a lead, and of those that stray upwards from the difference by as much as that exceeds the margin. Either
    alone is too hopeful by turns: where few records tell the models apart, and where the distribution is skewed. Without a
    lead it is 1, and so of equal models; NaN counts against.
    """
    if not difference > margin:
        return 1.0
    lost, strayed = ~(samples > margin), ~(samples - difference < difference - margin)
    return float((max(lost.sum(), strayed.sum()) + 1) / (len(samples) + 1))
