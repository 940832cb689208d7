"""The page of a dataset, `dataset.html`: what is in it and how its splits compare, in one file without scripts.

page.render(manifest, samples.take(source, rows, manifest.features), max_drift=0.1)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from components.convert.report import drift
from components.convert.report.samples import Samples
from components.evaluate.report import render_page, templates
from trainer.base.feature_summary import Summary
from trainer.base.manifest import Manifest

_CLASSES = 100  # that are listed
_HEIGHT, _BIN = 60, 10  # of a chart, in its own units
_TEMPLATES = templates("components.convert.report")


def render(manifest: Manifest, samples: Samples, *, max_drift: float = drift.NEVER) -> str:
    """The page's text.

    Args:
      manifest: Of the dataset, with summaries.
      samples: Of its training split.
      max_drift: The threshold that was asked for.
    """
    splits = {name: split for name, split in manifest.splits.items() if split.examples}
    level = min(max_drift, drift.NOTABLE)
    body = _TEMPLATES.get_template("dataset.html").render(
        m=manifest,
        splits=splits,
        classes=_classes(manifest, splits),
        hidden_classes=max(0, len(manifest.class_names) - _CLASSES),
        samples=samples,
        numbers=[_numbers(name, manifest) for name, s in _training(manifest).items() if s.histogram],
        categories=[_categories(name, manifest) for name, s in _training(manifest).items() if _categorical(s)],
        drifts=_drifts(manifest),
        level=level,
        max_drift=None if max_drift >= drift.NEVER else max_drift,
        notable=drift.NOTABLE,
        missing=_missing(manifest),
        arguments={
            name: value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
            for name, value in manifest.arguments.items()
        },
        shown=_shown,
    )
    return render_page(f"Dataset {manifest.name}", markupsafe.Markup(body))


def _training(manifest: Manifest) -> Mapping[str, Summary]:
    return manifest.splits["train"].summaries or {}


def _categorical(summary: Summary) -> bool:
    return summary.histogram is None or summary.unique is not None or summary.in_vocabulary is not None


def _summaries(name: str, manifest: Manifest) -> dict[str, Summary]:
    """By split with examples."""
    return {split: part.summaries[name] for split, part in manifest.splits.items() if part.examples}


def _unit(name: str, manifest: Manifest) -> str:
    """What a summary's values are, in words."""
    known = {feature.name: feature for feature in manifest.features}
    if name in known:
        return "mean pixel value of an image" if known[name].shape else known[name].unit or ""
    return "bytes of the file" if name.endswith(".bytes") else "pixels"


def _classes(manifest: Manifest, splits: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each class its examples and their share, by split."""
    rows = []
    for i, name in enumerate(manifest.class_names[:_CLASSES]):
        counts = {split: part.class_histogram[i] for split, part in splits.items()}
        cells = [{"split": s, "count": count, "share": count / splits[s].examples} for s, count in counts.items()]
        rows.append({"name": name, "cells": cells})
    longest = max((cell["share"] for row in rows for cell in row["cells"]), default=0) or 1
    for cell in (cell for row in rows for cell in row["cells"]):
        cell["width"] = cell["share"] / longest
    return rows


def _numbers(name: str, manifest: Manifest) -> dict[str, Any]:
    """A chart of a feature's numbers: bars of the training split, lines of the others."""
    summaries = _summaries(name, manifest)
    edges = summaries["train"].edges
    shares = {
        split: [count / max(sum(summary.histogram), 1) for count in summary.histogram]
        for split, summary in summaries.items()
    }
    top = max(max(split) for split in shares.values()) or 1
    return {
        "name": name,
        "unit": _unit(name, manifest),
        "summaries": summaries,
        "edges": edges,
        "width": _BIN * (len(edges) + 1),
        "height": _HEIGHT,
        "channels": _channels(summaries["train"]),
        "bars": _bars(shares.pop("train"), top),
        "lines": {split: _line(values, top) for split, values in shares.items()},
    }


def _channels(summary: Summary) -> list[tuple[str, float, float]]:
    """Of the pixels of an image: name of the channel, mean and standard deviation."""
    names = ("red", "green", "blue") if len(summary.channel_mean or ()) == 3 else ("all",)
    return list(zip(names, summary.channel_mean or (), summary.channel_std or (), strict=False))


def _bars(shares: Sequence[float], top: float) -> str:
    """An SVG path with a bar for each share."""
    return "".join(
        f"M{i * _BIN + 0.5},{_HEIGHT}v{-share / top * _HEIGHT:.1f}h{_BIN - 1}V{_HEIGHT}z"
        for i, share in enumerate(shares)
        if share
    )


def _line(shares: Sequence[float], top: float) -> str:
    """An SVG path with a step for each share."""
    return (
        f"M0,{_HEIGHT}" + "".join(f"V{_HEIGHT - share / top * _HEIGHT:.1f}h{_BIN}" for share in shares) + f"V{_HEIGHT}"
    )


def _categories(name: str, manifest: Manifest) -> dict[str, Any]:
    """The most frequent categories of the training split, with their shares in every split."""
    summaries = _summaries(name, manifest)
    counts = {
        s: dict(zip(summary.frequent or (), summary.counts or (), strict=True)) for s, summary in summaries.items()
    }
    rows = []
    for value in summaries["train"].frequent or ():
        shares = {s: counts[s][value] / manifest.splits[s].examples if value in counts[s] else None for s in summaries}
        rows.append({"value": value, "shares": shares})
    longest = max((share or 0 for row in rows for share in row["shares"].values()), default=0) or 1
    covered = {
        split: summary.in_vocabulary / manifest.splits[split].examples
        for split, summary in summaries.items()
        if summary.in_vocabulary is not None
    }
    unit = _unit(name, manifest)
    return {"name": name, "unit": unit, "summaries": summaries, "rows": rows, "longest": longest, "covered": covered}


def _missing(manifest: Manifest) -> list[dict[str, Any]]:
    """Features with missing values, and the share of them in every split."""
    rows = []
    for name in _training(manifest):
        summaries = _summaries(name, manifest)
        if any(summary.missing for summary in summaries.values()):
            shares = {split: summary.missing / manifest.splits[split].examples for split, summary in summaries.items()}
            default = next((feature.default for feature in manifest.features if feature.name == name), None)
            rows.append({"name": name, "default": default, "shares": shares})
    return rows


def _drifts(manifest: Manifest) -> list[dict[str, Any]]:
    """Distances from the training split by feature, the largest first."""
    found: dict[str, dict[str, float]] = {}
    for split, part in manifest.splits.items():
        for name, distance in (part.drift or {}).items():
            found.setdefault(name, {})[split] = distance
    numeric = {name for name, summary in _training(manifest).items() if not _categorical(summary)}
    rows = [
        {"name": name, "measure": "Jensen-Shannon" if name in numeric else "L-infinity", "distances": distances}
        for name, distances in found.items()
    ]
    return sorted(rows, key=lambda row: (-max(row["distances"].values()), row["name"]))


def _shown(number: float | int | None) -> str:
    """A number for people: as it is if it is whole, else with 4 digits."""
    if number is None:
        return "–"
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:,.4g}" if abs(number) < 1e4 else f"{number:,.0f}" if abs(number) < 1e15 else f"{number:.4g}"
