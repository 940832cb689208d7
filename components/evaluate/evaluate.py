"""Evaluates a candidate, and the champion on the same records, and writes the result."""

import json
import os
from typing import Any

from etils import epath

from common import provenance
from common.documents import plain
from common.errors import writable
from common.storage.files import tree_digest, write_text
from components.evaluate import report
from components.evaluate.baseline import baseline
from components.evaluate.champion import challenge
from components.evaluate.comparing import beat, gate_comparisons
from components.evaluate.eval_set import LEAST, EvalSet, require_enough
from components.evaluate.examples import sample
from components.evaluate.figures import figures
from components.evaluate.gate import BASELINE, CHAMPION, Comparison, decide
from components.evaluate.options import Options
from components.evaluate.score import load, predict
from components.evaluate.slices import slices
from trainer.job import done

FILE = "evaluation.json"
REPORT = "report.html"
_GAP = 0.2  # A larger loss of accuracy since training is worth a note.


def evaluate(options: Options) -> dict[str, Any]:
    """Scores a model, decides about it, and writes `evaluation.json` and `report.html`.

    Args:
      options: What to evaluate; both files are written to `options.output`, in place of those
        there.

    Returns:
      The content of `evaluation.json`. Numbers that are not finite are None. Evaluations with the
      same `fingerprint` and `split` are of the same records. `model_digest` identifies the model's
      files, so that only the model that was judged can be registered.

    Raises:
      UserError: If an input is missing or damaged, if model, dataset and gate do not fit each
        other, if too few records are left to judge by, or if the output cannot be written.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    model_dir = options.model_dir
    split = options.split
    gate = options.limits
    records = EvalSet.load(options.data_dir, split, provenance.task_of(model_dir))
    manifest, task = records.manifest, records.task
    chosen, twice, way = records.unseen(model_dir), int(records.repeated.sum()), ""
    if twice and not options.count_repeated:
        chosen &= ~records.repeated
        way = (
            f", or of few distinct rows with --count-repeated: {twice:,} are equal to training "
            "records"
        )
    require_enough(chosen, split, f"{model_dir} was not trained on them", way)
    model = load(model_dir, records)
    candidate = predict(model, records).of(chosen)
    rule, simple = baseline(records)
    simple = simple[chosen]
    labels = candidate.labels
    metrics = candidate.measure()
    against_champion = challenge(options, candidate, metrics)
    notes = [*against_champion.notes]
    comparisons = [
        *gate_comparisons(gate, candidate, metrics),
        beat(BASELINE, f"the {rule}", candidate, simple, confidence=gate.confidence),
        against_champion.comparison,
    ]
    if len(labels) < LEAST:
        words = f"not to be promoted by {len(labels)} records of {split}: it takes {LEAST}"
        comparisons.append(Comparison(who=CHAMPION, passed=False, words=words, records=len(labels)))
    if twice:
        fate = "count" if options.count_repeated else "do not count"
        notes.append(f"{twice:,} records of {split} are in the training split too, and {fate}")
    if not chosen.all():
        notes.append(
            f"judged by the {len(labels):,} of {len(chosen):,} records of {split} that it was not "
            "trained on"
        )
    job_dir = os.path.dirname(model_dir.rstrip("/"))
    trained = done.load(job_dir)
    learnt, accuracy = getattr(trained, "accuracy", None), metrics.get("accuracy")
    if learnt and accuracy is not None and learnt - accuracy > _GAP:
        notes.append(
            f"training ended with accuracy {learnt:.4f}, and here it is {accuracy:.4f}: the model "
            "has learnt its training records by heart, or its averages of batch normalisation lag"
        )
    names = manifest.class_names or manifest.targets
    columns = {
        **({"class": manifest.label} if manifest.class_names else {}),
        **{name: name for name in options.slices},
    }
    evaluation = {
        "metrics": {**metrics, "examples": len(labels)},
        "figures": figures(manifest.task, names, candidate.answers, labels),
        "parts": {
            name: slices(candidate, candidate.column(column)) for name, column in columns.items()
        },
        "answered": sample(model, manifest, task.answers[0], gate.latency_ms),
        "model_dir": model_dir,
        "model_digest": tree_digest(model_dir),
        "dataset": manifest.name,
        "fingerprint": manifest.fingerprint,
        "split": split,
        "repeated": twice,
        "task": manifest.task,
        "class_names": list(manifest.class_names),
        "targets": list(manifest.targets),
        "features": {f.name: f"{f.dtype}{list(f.shape)}" for f in manifest.inputs},
        "baseline": {"rule": rule, **task.measure(simple, labels)},
        "champion": against_champion.champion,
        "gate": gate.model_dump(),
        "metric": task.ranked_by(metrics),
        "decision": decide(task.ranked_by(metrics), comparisons, notes),
    }
    evaluation = plain(evaluation)
    directory = epath.Path(options.output)
    with writable(directory):
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / REPORT, report.page(evaluation, job_dir))
        write_text(directory / FILE, json.dumps(evaluation, indent=1, allow_nan=False) + "\n")
    return evaluation
