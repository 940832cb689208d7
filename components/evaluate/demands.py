"""Makes all comparisons that a gate asks for: of the whole split, and of its parts."""

from collections.abc import Iterator, Mapping

import numpy as np

from common.errors import UserError
from components.evaluate.comparing import reach
from components.evaluate.details.parts import in_words, parts
from components.evaluate.gate import Comparison
from components.evaluate.gate_file import Gate
from components.evaluate.score import Answers

_MOST_VALUES = 100


def demands(gate: Gate, answered: Answers, metrics: Mapping[str, float]) -> Iterator[Comparison]:
    """Thresholds and slices, by what a model has answered and its metrics.

    A part of the records is judged by itself if it has enough of them, and defines the metric. That the gate names a metric
    or a column that there is not, or one with too many values, is a UserError.
    """
    records = answered.records
    if missing := {name for asked in (gate.thresholds, *gate.slices.values()) for name in asked} - metrics.keys():
        raise UserError(
            f"a threshold of {min(missing)}: split {records.split!r} of dataset {records.manifest.name!r} gives no such "
            f"metric; it has {', '.join(metrics)}"
        )
    for metric, threshold in gate.thresholds.items():
        yield reach("threshold", metric, metrics[metric], threshold, records.task, len(answered.labels))
    for column, asked in gate.slices.items():
        values = answered.column(column)
        if (count := len(np.unique(values))) > _MOST_VALUES:
            raise UserError(f"slices.{column}: {count:,} different values; {_MOST_VALUES} can be looked at one by one")
        for part in parts(answered, in_words(values, _MOST_VALUES)):
            count, own = part["records"], part["metrics"]
            of = f" of {column} {part['value']} ({count:,} records)"
            for metric, threshold in asked.items():
                if count >= gate.slice_records and metric in own:
                    yield reach("slice", metric, own[metric], threshold, records.task, count, of=of)
                else:
                    why = f"it takes {gate.slice_records}" if metric in own else "they do not define it"
                    words = f"{metric}{of} is not judged: {why}"
                    yield Comparison(who="slice", passed=True, words=words, metric=metric, records=count)
