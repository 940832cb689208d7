"""Evaluates a candidate, and the champion on the same records, and writes what was found."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from etils import epath

from components.evaluate import report
from components.evaluate.baseline import baseline
from components.evaluate.bootstrap import figures
from components.evaluate.comparing import beat
from components.evaluate.demands import demands
from components.evaluate.details.details import details
from components.evaluate.gate import CHAMPION, Comparison, decide
from components.evaluate.options import Options
from components.evaluate.score import Answers, measure, predict_split
from components.evaluate.unseen import repeated, require_enough, unseen
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
    counted = unseen(manifest, data_dir, split, model_dir)
    require_enough(counted, split, f"{model_dir} was not trained on them")
    answered, classes = predict_split(model_dir, data_dir, split, task), len(manifest.class_names)
    candidate = answered.of(counted)
    score = measure(candidate, task, classes)
    rule, simple = baseline(manifest, data_dir, split, task)
    found = figures(task, {"candidate": candidate.answers, "baseline": simple[counted]}, candidate.labels)
    champion, other, gone = None, None, ""
    if options.registry:
        champion, other, gone = _champion(options, manifest, task, candidate, score["metrics"])
    shared = {}
    if other:
        ours, theirs = other
        shared = figures(task, {"candidate": ours.answers, CHAMPION: theirs.answers}, theirs.labels)
    shown = details(model_dir, manifest, data_dir, split, task, candidate, by=options.slices)
    gate, metric = options.asked, task.ranked_by(score["metrics"])
    comparisons = [
        *demands(gate, manifest, data_dir, split, task, candidate, shown["footprint"]),
        beat("baseline", f"the {rule}", *found.values(), task, metric, confidence=gate.confidence, margin=0.0),
    ]
    if shared:
        sure = {"confidence": gate.confidence, "margin": gate.margin}
        few = champion["examples"] < len(candidate.labels)
        where = f" on the {champion['examples']:,} records that neither was trained on" if few else ""
        comparisons.append(beat(CHAMPION, f"the champion{where}", *shared.values(), task, metric, **sure))
    else:
        alone = (
            f"cannot be compared with the champion: {champion['incomparable']}"
            if champion
            else "there is no champion to compare with"
        )
        comparisons.append(Comparison(who=CHAMPION, passed=champion is None, words=alone))
    notes = _often(options, manifest)
    if twice := repeated(manifest, data_dir, split):
        notes.append(f"{twice:,} records of {split} are in the training split too, and count")
    if not counted.all():
        left = score["metrics"]["examples"]
        notes.append(f"judged by the {left:,} of {len(counted):,} records of {split} that it was not trained on")
    decision = decide(metric, comparisons, [*notes, *([gone] if gone else [])])
    evaluation = {
        **score,
        "answered": answered.sample,
        **shown,
        "model_dir": model_dir,
        "model_digest": tree_digest(model_dir),
        "dataset": manifest.name,
        "fingerprint": manifest.fingerprint,
        "split": split,
        "repeated": twice,
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
    directory = epath.Path(options.output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / REPORT, report.page(evaluation))
        write_text(directory / FILE, json.dumps(evaluation, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror or error}") from None
    return evaluation


def _champion(
    options: Options, manifest: Manifest, task: Task, candidate: Answers, metrics: Mapping[str, float]
) -> tuple[dict[str, Any] | None, tuple[Answers, Answers] | None, str]:
    """The champion, what both models answer for the records that neither was trained on, and what was passed over, in words.

    It has its `version`, and on these `examples` its `metrics`, and where they are fewer than those that the candidate is judged
    by, also the metrics of the `candidate`. One that cannot be compared has none, and a reason: it is `incomparable`.
    """
    store, data_dir, split = open_registry(options.registry), options.data_dir, options.split
    version, gone = store.standing(options.name)
    if gone:
        print(gone)
    if version is None:
        return None, None, gone
    found = {"version": version, "metrics": None, "candidate": None, "examples": None, "incomparable": ""}
    try:
        model_dir = store.model_dir(options.name, version)
        both = unseen(manifest, data_dir, split, model_dir)[candidate.records]
        require_enough(both, split, "neither model was trained on them")
        ours = candidate.of(both)
        theirs = predict_split(model_dir, data_dir, split, task).of(ours.records)
        own, other = (measure(each, task, 0)["metrics"] for each in (ours, theirs))
        if lost := metrics.keys() - other.keys():
            raise UserError(f"the {both.sum():,} records of {split} that neither was trained on give no {min(lost)}")
    except UserError as error:
        print(f"the champion, version {version}, cannot be compared: {error}")
        return {**found, "incomparable": str(error)}, None, gone
    found |= {"metrics": other, "candidate": None if both.all() else own, "examples": int(both.sum())}
    return found, (ours, theirs), gone


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
