"""Evaluates a candidate, and the champion on the same records, and writes what was found.

`evaluation.json` holds every metric and every figure of the decision; `report.html` shows them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from etils import epath

from components.evaluate import gate, report
from components.evaluate.baseline import baseline, decisive
from components.evaluate.options import Options
from components.evaluate.score import Score, score_model
from components.register.open import open_registry
from components.register.registry import CHAMPION
from trainer.base.errors import UserError
from trainer.base.files import tree_digest, write_text
from trainer.base.manifest import Manifest

FILE = "evaluation.json"
REPORT = "report.html"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Champion:
    """The model to beat: its version, and its metrics or why there are none."""

    version: str
    metrics: Mapping[str, float] | None = None
    incomparable: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A judged model.

    Attributes:
      model_dir: The SavedModel that was scored.
      model_digest: SHA-256 over its files: what is registered must be what was scored.
      dataset: Name of the dataset.
      fingerprint: Of the dataset: the same fingerprint and split are the same records.
      split: Of the dataset.
      class_names: In the order of the confusion matrix.
      score: Of the candidate.
      baseline: What it has to beat (`baseline.baseline`), on the same records.
      metric: That models are compared by.
      thresholds: By metric.
      champion: On the same records; None without a registry, or where it has no champion.
      decision: What to do, and why.
    """

    model_dir: str
    model_digest: str
    dataset: str
    fingerprint: str
    split: str
    class_names: tuple[str, ...]
    score: Score
    baseline: Mapping[str, Any]
    metric: str
    thresholds: Mapping[str, float]
    champion: Champion | None
    decision: gate.Decision

    def to_json(self) -> str:
        """The text of `evaluation.json`."""
        fields = dataclasses.asdict(self)
        return json.dumps({**fields.pop("score"), **fields}, indent=1) + "\n"


def evaluate(options: Options) -> Evaluation:
    """Scores the model and writes `evaluation.json` and `report.html` to `options.output`.

    Raises:
      UserError: If an input is missing or does not fit, or the output cannot be written.
    """
    model_dir, data_dir, split, given = options.model_dir, options.data_dir, options.split, options.thresholds
    manifest = Manifest.load(data_dir)
    metric = decisive(manifest)
    if "auc" in given and len(manifest.class_names) != 2:
        raise UserError(
            f"--min-auc {options.min_auc}: dataset {manifest.name!r} has {len(manifest.class_names)} classes and not two; "
            "use --min-accuracy"
        )
    score = score_model(model_dir, data_dir, split)
    thresholds = {metric: 0.0, **given}
    if missing := thresholds.keys() - score.metrics.keys():
        raise UserError(
            f"split {split!r} of dataset {manifest.name!r} has one class only, so there is no {min(missing)}"
        )
    found = baseline(manifest, data_dir, split)
    champion = _champion(options.registry, options.name, data_dir, split) if options.registry else None
    evaluation = Evaluation(
        model_dir=model_dir,
        model_digest=tree_digest(model_dir),
        dataset=manifest.name,
        fingerprint=manifest.fingerprint,
        split=split,
        class_names=manifest.class_names,
        score=score,
        baseline=found,
        metric=metric,
        thresholds=thresholds,
        champion=champion,
        decision=gate.decide(
            score.metrics,
            found,
            metric=metric,
            thresholds=thresholds,
            champion=champion and champion.metrics,
            incomparable=champion.incomparable if champion else "",
        ),
    )
    directory = epath.Path(options.output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / REPORT, report.page(json.loads(evaluation.to_json())))
        write_text(directory / FILE, evaluation.to_json())
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror or error}") from None
    return evaluation


def _champion(registry: str, name: str, data_dir: str, split: str) -> Champion | None:
    """The champion scored on these records; a champion that was made for other data is told of, and stays."""
    store = open_registry(registry)
    version = store.alias(name, CHAMPION)
    if version is None:
        return None
    try:
        score = score_model(store.model_dir(name, version), data_dir, split)
    except UserError as error:
        print(f"the champion, version {version}, cannot be compared: {error}")
        return Champion(version=version, incomparable=str(error))
    return Champion(version=version, metrics=score.metrics)
