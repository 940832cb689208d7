"""Judges a candidate by a gate: makes all comparisons, and has the gate decide."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from components.evaluate.bootstrap import Figures
from components.evaluate.comparing import beat, reach
from components.evaluate.cost import latency_ms
from components.evaluate.gate import CHAMPION, Comparison, decide
from components.evaluate.gate_file import Gate
from components.evaluate.score import Answers
from components.evaluate.slices import slices
from trainer.base.errors import UserError
from trainer.base.files import tree_bytes
from trainer.base.manifest import Manifest
from trainer.nn.tasks.base import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge:
    """What is judged, and by what.

    Attributes:
      gate: What is asked.
      manifest: Of the dataset.
      data_dir: Where it is.
      split: Whose records count.
      model_dir: Of the candidate.
      task: Of the candidate.
    """

    gate: Gate
    manifest: Manifest
    data_dir: str
    split: str
    model_dir: str
    task: Task

    def decide(
        self,
        candidate: Answers,
        found: dict[str, Figures],
        rule: str,
        champion: dict[str, Any] | None,
        shared: dict[str, Figures],
        decided: int,
    ) -> dict[str, Any]:
        """The decision.

        Args:
          candidate: What the model has answered.
          found: Figures of `candidate` and `baseline`.
          rule: The baseline, in words.
          champion: Its `version`, and why it is `incomparable`; None where there is none.
          shared: Figures of `candidate` and `champion` on the records that both are compared on.
          decided: How many versions this split is known to have decided about.

        Raises:
          UserError: If the gate asks for what there is not.
        """
        ours, metric = found["candidate"], self.task.ranked_by(found["candidate"].metrics)
        comparisons = [*self._thresholds(ours), *self._slices(candidate), *self._costs()]
        sure = {"confidence": self.gate.confidence}
        comparisons.append(
            beat("baseline", f"the {rule}", ours, found["baseline"], self.task, metric, margin=0.0, **sure)
        )
        notes = []
        if champion is None:
            words = "there is no champion to compare with"
            comparisons.append(Comparison(who=CHAMPION, passed=True, words=words))
        elif not shared:
            words = f"cannot be compared with the champion: {champion['incomparable']}"
            comparisons.append(Comparison(who=CHAMPION, passed=False, words=words, metric=metric))
        else:
            pair = shared["candidate"], shared[CHAMPION]
            last = beat(CHAMPION, "the champion", *pair, self.task, metric, margin=self.gate.margin, **sure)
            comparisons.append(last)
            if last.records_needed:
                small = "0.5 %" if metric in self.task.lower_is_better else "0.5 points"
                notes.append(
                    f"a difference of {small} between two such models is seen four times out of five with "
                    f"{last.records_needed:,} records; these are {last.records:,}"
                )
        if decided:
            notes.append(
                f"these records have decided about {decided} versions of this name, at least; the more often they do, the less "
                "a lead on them says"
            )
        return decide(metric, comparisons, notes)

    def _thresholds(self, ours: Figures) -> Iterator[Comparison]:
        self._check(self.gate.thresholds, ours.metrics)
        for metric, threshold in self.gate.thresholds.items():
            yield reach("threshold", metric, ours.metrics[metric], threshold, self.task, ours.records)

    def _slices(self, candidate: Answers) -> Iterator[Comparison]:
        asked, seen = self.gate.slices, {}
        for column, value, part in slices(self.manifest, self.data_dir, self.split, candidate.labels, asked):
            of, records = f" of {column} {value}", int(part.sum())
            metrics = self.task.measure(candidate.answers[part], candidate.labels[part])
            seen.setdefault(column, set()).update(metrics)
            for metric, threshold in asked[column].items():
                if records >= self.gate.slice_records:
                    figure = metrics.get(metric, float("nan"))
                    yield reach("slice", metric, figure, threshold, self.task, records, of=of)
                else:
                    words = f"{metric}{of} is not judged: {records} of {self.gate.slice_records} records"
                    yield Comparison(who="slice", passed=True, words=words, metric=metric, records=records)
        for column, metrics in seen.items():
            self._check(asked[column], metrics)

    def _check(self, thresholds, metrics) -> None:
        if missing := thresholds.keys() - metrics:
            raise UserError(
                f"a threshold of {min(missing)}: split {self.split!r} of dataset {self.manifest.name!r} gives no such metric; "
                f"it has {', '.join(metrics)}"
            )

    def _costs(self) -> Iterator[Comparison]:
        if most := self.gate.max_latency_ms:
            taken = latency_ms(self.model_dir, self.manifest, self.data_dir, self.split, self.task)
            yield _cost("latency", taken, most, "ms")
        if most := self.gate.max_size_mb:
            yield _cost("size", tree_bytes(self.model_dir) / 1e6, most, "MB")


def _cost(what: str, value: float, most: float, unit: str) -> Comparison:
    passed = value <= most
    words = f"{what} {value:.4g} {unit} is {'within' if passed else 'over'} the bound {most:.4g} {unit}"
    return Comparison(
        who="cost", passed=passed, words=words, metric=f"{what}_{unit.lower()}", candidate=value, threshold=most
    )
