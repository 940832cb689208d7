"""Evaluates a candidate, and the champion on the same records, and writes what was found."""

import dataclasses
import json
from typing import Any

from etils import epath

from components.evaluate import report
from components.evaluate.baseline import baseline
from components.evaluate.bootstrap import figures
from components.evaluate.comparing import beat
from components.evaluate.demands import demands
from components.evaluate.gate import CHAMPION, Comparison, decide
from components.evaluate.options import Options
from components.evaluate.score import Answers, measure, predict_split
from components.register.register import open_registry
from trainer.base import provenance
from trainer.base.errors import UserError
from trainer.base.files import tree_digest, write_text
from trainer.base.manifest import Manifest
from trainer.nn.models import registry
from trainer.nn.tasks.base import Task

FILE = "evaluation.json"
REPORT = "report.html"


def evaluate(options: Options) -> dict[str, Any]:
    """Scores the model and writes `evaluation.json` and `report.html` to `options.output`.

    Returns:
      The content of `evaluation.json`: every metric, and every figure of the decision. The same `fingerprint` and
      `split` are the same records, and what is registered must be what has the `model_digest`.

    Raises:
      UserError: If an input is missing or does not fit, or the output cannot be written.
    """
    model_dir, data_dir, split = options.model_dir, options.data_dir, options.split
    manifest = Manifest.load(data_dir)
    task = registry.task(provenance.task_of(model_dir), manifest)
    candidate, classes = predict_split(model_dir, data_dir, split, task), len(manifest.class_names)
    score = measure(candidate, task, classes)
    rule, simple = baseline(manifest, data_dir, split, task)
    found = figures(task, {"candidate": candidate.answers, "baseline": simple}, candidate.labels)
    champion, other, gone = None, None, ""
    if options.registry:
        champion, other, gone = _champion(options.registry, options.name, data_dir, split, task)
    shared = figures(task, {"candidate": candidate.answers, CHAMPION: other.answers}, other.labels) if other else {}
    if champion:
        champion["metrics"] = other and measure(other, task, classes)["metrics"]
    gate, metric = options.asked, task.ranked_by(score["metrics"])
    comparisons = [
        *demands(gate, manifest, data_dir, split, model_dir, task, candidate),
        beat("baseline", f"the {rule}", *found.values(), task, metric, confidence=gate.confidence, margin=0.0),
    ]
    if shared:
        sure = {"confidence": gate.confidence, "margin": gate.margin}
        comparisons.append(beat(CHAMPION, "the champion", *shared.values(), task, metric, **sure))
    else:
        alone = (
            f"cannot be compared with the champion: {champion['incomparable']}"
            if champion
            else "there is no champion to compare with"
        )
        comparisons.append(Comparison(who=CHAMPION, passed=champion is None, words=alone))
    decision = decide(metric, comparisons, _often(options, manifest))
    evaluation = {
        **score,
        "answered": candidate.sample,
        "model_dir": model_dir,
        "model_digest": tree_digest(model_dir),
        "dataset": manifest.name,
        "fingerprint": manifest.fingerprint,
        "split": split,
        "task": manifest.task,
        "class_names": list(manifest.class_names),
        "baseline": {"rule": rule, **found["baseline"].metrics},
        "targets": list(manifest.targets),
        "features": {f.name: f"{f.dtype}{list(f.shape)}" for f in manifest.inputs},
        "champion": champion,
        "intervals": {who: each.intervals() for who, each in {**shared, **found}.items()},
        "gate": dataclasses.asdict(gate),
        "metric": metric,
        "decision": decision,
    }
    if gone:
        evaluation["decision"]["reasons"].insert(0, gone)
    directory = epath.Path(options.output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / REPORT, report.page(evaluation))
        write_text(directory / FILE, json.dumps(evaluation, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror or error}") from None
    return evaluation


def _champion(
    registry: str, name: str, data_dir: str, split: str, task: Task
) -> tuple[dict[str, Any] | None, Answers | None, str]:
    """The champion's version, and what it answers for these records or why one that was made for other data does not.

    And in words, what was passed over because its files are gone.
    """
    store = open_registry(registry)
    version, gone = store.standing(name)
    if gone:
        print(gone)
    if version is None:
        return None, None, gone
    try:
        answers = predict_split(store.model_dir(name, version), data_dir, split, task)
        return {"version": version, "incomparable": ""}, answers, gone
    except UserError as error:
        print(f"the champion, version {version}, cannot be compared: {error}")
        return {"version": version, "incomparable": str(error)}, None, gone


def _often(options: Options, manifest: Manifest) -> list[str]:
    """What is to be said of a split that has decided before: the oftener, the more of a lead is luck with its records."""
    if not options.registry:
        return []
    store = open_registry(options.registry)
    known = [store.facts(options.name, version) for version in store.versions(options.name)]
    same = (manifest.fingerprint, options.split)
    times = sum((facts.get("fingerprint"), facts.get("split")) == same for facts in known)
    often = f"at least {times} times" if times > 1 else "at least once"
    return [f"these records have decided about {options.name!r} before, {often}"] if times else []
