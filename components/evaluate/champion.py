"""Holds a candidate against the champion of a registry, on the records that neither was trained on."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import UserError
from components.evaluate.comparing import beat
from components.evaluate.eval_set import EvalSet, require_enough
from components.evaluate.gate import CHAMPION, Comparison
from components.evaluate.options import Options
from components.evaluate.score import Answers, load, predict
from components.register.register import open_registry
from components.register.registry import Registry

_NOBODY = Comparison(who=CHAMPION, passed=True, words="there is no champion to compare with")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Challenge:
    """Result of the comparison of a candidate with the champion."""

    # Its `version`, and on the `examples` that both are measured by its `metrics`, and where they
    # are fewer than those that the candidate is judged by, also the metrics of the `candidate`; why
    # it is `incomparable`, if so. None without one.
    champion: Mapping[str, Any] | None = None
    comparison: Comparison = _NOBODY
    notes: Sequence[str] = ()


def challenge(options: Options, candidate: Answers, metrics: Mapping[str, float]) -> Challenge:
    """Compares the candidate, which has these metrics, with the champion, if there is one."""
    if not options.registry:
        return Challenge()
    registry, records = open_registry(options.registry), candidate.records
    notes = _earlier_decisions(registry, options.name, records)
    version = registry.aliases(options.name).get(CHAMPION)
    if version is None:
        return Challenge(notes=notes)
    champion = {
        "version": version,
        "metrics": None,
        "candidate": None,
        "examples": None,
        "incomparable": "",
    }
    try:
        ours, theirs = _shared(candidate, registry.find(options.name, version).model_dir)
        figures = theirs.figures()
        if undefined := metrics.keys() - figures:
            raise UserError(
                f"the {len(ours.labels):,} records of {records.split} that neither was trained on "
                f"give no {min(undefined)}"
            )
    except UserError as error:
        print(f"the champion, version {version}, cannot be compared: {error}")
        words = f"cannot be compared with the champion: {error}"
        comparison = Comparison(who=CHAMPION, passed=False, words=words)
        return Challenge(
            champion={**champion, "incomparable": str(error)}, comparison=comparison, notes=notes
        )
    examples = figures["examples"]
    champion |= {"metrics": figures, "examples": examples}
    name = "the champion"
    if examples < len(candidate.labels):
        champion["candidate"] = ours.figures()
        name += f" on the {examples:,} records that neither was trained on"
    limits = {"confidence": options.limits.confidence, "margin": options.limits.margin}
    comparison = beat(CHAMPION, name, ours, theirs.answers, **limits)
    return Challenge(champion=champion, comparison=comparison, notes=notes)


def _shared(candidate: Answers, champion_dir: str) -> tuple[Answers, Answers]:
    """Returns both models' answers to the candidate's records that the champion was not trained on either."""
    records = candidate.records
    both = records.unseen(champion_dir)[candidate.positions]
    require_enough(both, records.split, "neither model was trained on them")
    ours = candidate.of(both)
    return ours, predict(load(champion_dir, records), records).of(ours.positions)


def _earlier_decisions(registry: Registry, name: str, records: EvalSet) -> list[str]:
    """Says how often a split has decided before: the oftener, the more of a lead is luck with its records."""
    decided_by = (records.manifest.fingerprint, records.split)
    versions = [version.facts for version in registry.versions(name)]
    times = sum((facts.get("fingerprint"), facts.get("split")) == decided_by for facts in versions)
    often = f"at least {times} times" if times > 1 else "at least once"
    return [f"these records have decided about {name!r} before, {often}"] if times else []
