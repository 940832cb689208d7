"""The page of a dataset, `dataset.html`: what is in it and how its splits compare, in one file without scripts.

page.render(manifest, tallies)
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from common.manifest import MULTI_LABEL, REGRESSION, Manifest, Split
from common.pages import render_page, templates
from components.convert.report.tallies import Tallies

_CLASSES = 100  # that are listed
_TEMPLATES = templates("components.convert.report")


def render(manifest: Manifest, tallies: Tallies) -> str:
    """The page's text, given what is known of its examples."""
    splits = {name: split for name, split in manifest.splits.items() if split.examples}
    training = splits["train"].summaries
    numbers = [name for name, s in training.items() if s.histogram]
    categories = [
        name for name, s in training.items() if not s.histogram or s.unique is not None or s.in_vocabulary is not None
    ]
    missing = {name for split in splits.values() for name, summary in split.summaries.items() if summary.missing}
    image = next((feature for feature in manifest.features if feature.dtype == "uint8"), None)
    names = manifest.class_names or manifest.targets
    kind = {MULTI_LABEL: "label", REGRESSION: "target"}.get(manifest.task, "class")
    body = _TEMPLATES.get_template("dataset.html").render(
        m=manifest,
        splits=splits,
        kind=kind,
        kinds="classes" if kind == "class" else kind + "s" * (len(names) > 1),
        names=names,
        counted=[*enumerate(names[:_CLASSES])] if manifest.task != REGRESSION else [],
        top_class=max(
            (n / split.examples for split in splits.values() for n in split.class_histogram[:_CLASSES]), default=0
        )
        or 1,
        strips=tallies.samples.strips(names) if image else [],
        sample_rows=[] if image else tallies.samples.table(),
        charts={name: _chart(name, splits) for name in numbers},
        shares={name: _shares(name, splits) for name in categories},
        missing=[feature for feature in manifest.features if feature.name in missing],
        units={name: _unit(name, manifest) for name in training},
        drifts=_drifts(splits, set(training) - set(categories)),
        arguments={
            name: value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
            for name, value in manifest.arguments.items()
        },
        shown=_shown,
    )
    return render_page(f"Dataset {manifest.name}", body)


def _unit(name: str, manifest: Manifest) -> str:
    """What a summary's values are, in words."""
    known = {feature.name: feature for feature in manifest.features}
    if name in known:
        return "mean pixel value of an image" if known[name].shape else known[name].unit or ""
    if (target := name.removeprefix(f"{manifest.label}.")) != name:
        return (known[target].unit or "") if target in known else ""
    return "bytes of the file" if name.endswith(".bytes") else "pixels"


def _chart(name: str, splits: Mapping[str, Split]) -> dict[str, list[float]]:
    """The histograms of a feature by split, as shares of the split; the largest of all is 1."""
    histograms = {split: part.summaries[name].histogram for split, part in splits.items()}
    shares = {split: [count / max(sum(counts), 1) for count in counts] for split, counts in histograms.items()}
    top = max(map(max, shares.values())) or 1
    return {split: [share / top for share in each] for split, each in shares.items()}


def _shares(name: str, splits: Mapping[str, Split]) -> dict[str, Any]:
    """The most frequent categories of the training split, with their shares in every split that tells of them.

    `top` is the largest share. Of a text that is cut, others may begin as it does: no other split tells of it.
    """
    found = {}
    for split, part in splits.items():
        counted = zip(part.summaries[name].frequent or (), part.summaries[name].counts or (), strict=True)
        found[split] = [(value, count / part.examples) for value, count in counted]
    whole = {split: {v: n for v, n in each if not str(v).endswith("…")} for split, each in found.items()}
    rows = [(v, {split: each.get(v) for split, each in whole.items()} | {"train": n}) for v, n in found["train"]]
    return {"rows": rows, "top": max((share or 0 for _, by_split in rows for share in by_split.values()), default=1)}


def _drifts(splits: Mapping[str, Split], numbers: Collection[str]) -> list[dict[str, Any]]:
    """Distances from the training split by feature, the largest first."""
    rows: dict[str, dict[str, Any]] = {}
    for split, part in splits.items():
        for name, distance in (part.drift or {}).items():
            measure = "Jensen-Shannon" if name in numbers else "L-infinity"
            row = rows.setdefault(name, {"name": name, "measure": measure, "distances": {}})
            row["distances"][split] = distance
    return sorted(rows.values(), key=lambda row: (-max(row["distances"].values()), row["name"]))


def _shown(number: float | int | None) -> str:
    """A number for people: as it is if it is whole, else with 4 digits."""
    if number is None:
        return "–"
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.4g}" if abs(number) < 1e4 else f"{number:,.0f}" if abs(number) < 1e15 else f"{number:.4g}"
