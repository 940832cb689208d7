"""Compares a candidate with the champion of a registry, on records that neither was trained on."""

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
    """Result of the comparison of a candidate with the champion.

    Attributes:
      champion: What `evaluation.json` keeps about the champion; None if there is no champion.
        `version` is its number. `metrics` are its metrics on the `examples` records that both
        models are compared on. `candidate` has the candidate's metrics on the same records if these
        are fewer than the records that the candidate itself is judged by; else it is None.
        `incomparable` says why the two cannot be compared, and is empty if they can; otherwise
        `metrics`, `candidate` and `examples` are None.
      comparison: Passes if the candidate beats the champion, or if there is no champion.
      notes: Sentences for the reasons of the decision.
    """

    champion: Mapping[str, Any] | None = None
    comparison: Comparison = _NOBODY
    notes: Sequence[str] = ()


def challenge(options: Options, candidate: Answers, metrics: Mapping[str, float]) -> Challenge:
    """Compares a candidate with the champion of the registry, if there is one.

    A champion that cannot be compared (because its files are gone, it does not fit the dataset, or
    too few records are new to both models) is a comparison that fails, and no error; the reason is
    printed.

    Args:
      options: `registry`, `name` and `limits` are used. Without a registry nothing is compared, and
        the comparison passes as without a champion.
      candidate: The candidate's answers to the records that it is judged by.
      metrics: The candidate's metrics on these. The champion has to have them all.

    Raises:
      UserError: If the registry cannot be read.
      ConnectionError: If Vertex AI or a store does not answer.
    """
    if not options.registry:
        return Challenge()
    registry, records = open_registry(options.registry), candidate.records
    notes = _earlier_decisions(registry, options.name, records)
    version = registry.aliases(options.name).get(CHAMPION)
    if version is None:
        return Challenge(notes=notes)
    champion: dict[str, Any] = {
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
    # If the champion was trained on some of the candidate's records, both are compared on the rest.
    examples = figures["examples"]
    champion |= {"metrics": figures, "examples": examples}
    name = "the champion"
    if examples < len(candidate.labels):
        champion["candidate"] = ours.figures()
        name += f" on the {examples:,} records that neither was trained on"
    comparison = beat(
        CHAMPION,
        name,
        ours,
        theirs.answers,
        confidence=options.limits.confidence,
        margin=options.limits.margin,
    )
    return Challenge(champion=champion, comparison=comparison, notes=notes)


def _shared(candidate: Answers, champion_dir: str) -> tuple[Answers, Answers]:
    """Returns the candidate's and the champion's answers to the same records.

    These are those of the candidate's records that the champion was not trained on either.

    Raises:
      UserError: If they are too few, or if the champion cannot be loaded or does not fit the
        dataset.
      ConnectionError: If a store does not answer.
    """
    records = candidate.records
    both = records.unseen(champion_dir)[candidate.positions]
    require_enough(both, records.split, "neither model was trained on them")
    ours = candidate.of(both)
    return ours, predict(load(champion_dir, records), records).of(ours.positions)


def _earlier_decisions(registry: Registry, name: str, records: EvalSet) -> list[str]:
    """Returns one note if this split has judged earlier versions of the model, else none.

    The more often the same records decide, the more of a lead is luck with these records.
    """
    decided_by = (records.manifest.fingerprint, records.split)
    versions = [version.facts for version in registry.versions(name)]
    times = sum((facts.get("fingerprint"), facts.get("split")) == decided_by for facts in versions)
    often = f"at least {times} times" if times > 1 else "at least once"
    return [f"these records have decided about {name!r} before, {often}"] if times else []
