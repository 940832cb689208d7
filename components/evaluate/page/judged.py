"""Plots of an evaluation: how sure and how right the candidate is."""

from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.page import plots

_SHARES = (-0.02, 1.02)


def judged(e: Mapping[str, Any]) -> list[markupsafe.Markup]:
    """Those plots that an evaluation (the content of `evaluation.json`) has the figures for."""
    figures, names, found = e["figures"], e["class_names"], []
    if calibration := figures.get("calibration"):
        bins = [(each["confidence"], each["accuracy"]) for each in calibration["bins"]]
        told = f"Of answers that are this sure, so many are right; the expected calibration error is {calibration['ece']:.4f}."
        found.append(_plot("calibration", told, ("confidence", "share that is right"), bins, marker="o"))
    if roc := figures.get("roc"):
        told = f"Share of {names[1]} that is found, against the share of {names[0]} that is taken for it."
        found.append(_plot("ROC curve", told, ("false positives", "true positives"), roc))
    if curve := figures.get("precision_recall"):
        told = f"Precision against recall of {names[1]}; the average precision is {curve['average_precision']:.4f}."
        found.append(_plot("precision and recall", told, ("recall", "precision"), curve["points"], diagonal=False))
    return found


def _plot(
    title: str,
    told: str,
    labels: tuple[str, str],
    points: Sequence[Sequence[float]],
    *,
    marker: str = "",
    diagonal: bool = True,
) -> markupsafe.Markup:
    """A line through points with x and y, both shares; what else a point has is not drawn."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(xlabel=labels[0], ylabel=labels[1], xlim=_SHARES, ylim=_SHARES)
        axes.plot([point[0] for point in points], [point[1] for point in points], marker=marker)
        if diagonal:
            axes.plot([0, 1], [0, 1], color=plots.SOFT, linestyle="--", linewidth=1)

    return plots.plot(title, told, draw)
