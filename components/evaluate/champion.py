"""Holds a candidate against the champion of a registry, on the records that neither was trained on."""

from collections.abc import Mapping
from typing import Any

from common.errors import UserError
from components.evaluate.comparing import beat
from components.evaluate.eval_set import EvalSet, require_enough
from components.evaluate.gate import CHAMPION, Comparison
from components.evaluate.options import Options
from components.evaluate.score import Answers, load, predict
from components.register.register import open_registry
from components.register.store import Store


def challenge(
    options: Options, candidate: Answers, metrics: Mapping[str, float]
) -> tuple[dict[str, Any] | None, Comparison, list[str]]:
    """Compares the candidate, which has these metrics, with the champion, if there is one.

    Returns:
      The champion: its `version`, and on the `examples` that both are measured by its `metrics`, and where they are fewer than
      those that the candidate is judged by, also the metrics of the `candidate`; of one that cannot be compared none, and a
      reason: it is `incomparable`. The comparison. What else is to be said.
    """
    alone = Comparison(who=CHAMPION, passed=True, words="there is no champion to compare with")
    if not options.registry:
        return None, alone, []
    store, records = open_registry(options.registry), candidate.records
    version, gone = store.standing(options.name)
    if gone:
        print(gone)
    notes = [*_often(store, options.name, records), *([gone] if gone else [])]
    if version is None:
        return None, alone, notes
    champion = {"version": version, "metrics": None, "candidate": None, "examples": None, "incomparable": ""}
    try:
        ours, theirs = _shared(candidate, store.model_dir(options.name, version))
        figures = theirs.figures()
        if lost := metrics.keys() - figures:
            raise UserError(
                f"the {len(ours.labels):,} records of {records.split} that neither was trained on give no {min(lost)}"
            )
    except UserError as error:
        print(f"the champion, version {version}, cannot be compared: {error}")
        words = f"cannot be compared with the champion: {error}"
        comparison = Comparison(who=CHAMPION, passed=False, words=words)
        return {**champion, "incomparable": str(error)}, comparison, notes
    examples = figures["examples"]
    champion |= {"metrics": figures, "examples": examples}
    name = "the champion"
    if examples < len(candidate.labels):
        champion["candidate"] = ours.figures()
        name += f" on the {examples:,} records that neither was trained on"
    sure = {"confidence": options.asked.confidence, "margin": options.asked.margin}
    return champion, beat(CHAMPION, name, ours.answers, theirs.answers, ours.labels, records.task, **sure), notes


def _shared(candidate: Answers, champion_dir: str) -> tuple[Answers, Answers]:
    """Returns both models' answers to the candidate's records that the champion was not trained on either."""
    records = candidate.records
    both = records.unseen(champion_dir)[candidate.positions]
    require_enough(both, records.split, "neither model was trained on them")
    ours = candidate.of(both)
    return ours, predict(load(champion_dir, records), records).of(ours.positions)


def _often(store: Store, name: str, records: EvalSet) -> list[str]:
    """What is to be said of a split that has decided before: the oftener, the more of a lead is luck with its records."""
    known = [store.facts(name, version) for version in store.versions(name)]
    same = (records.manifest.fingerprint, records.split)
    times = sum((facts.get("fingerprint"), facts.get("split")) == same for facts in known)
    often = f"at least {times} times" if times > 1 else "at least once"
    return [f"these records have decided about {name!r} before, {often}"] if times else []
