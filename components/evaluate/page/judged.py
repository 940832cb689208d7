"""Plots of an evaluation: how sure and how right the candidate is."""

from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.page import plots
from components.undefined import figure as shown

_SHARES = (-0.02, 1.02)


def judged(e: Mapping[str, Any]) -> list[markupsafe.Markup]:
    """Those plots that an evaluation (the content of `evaluation.json`) has the figures for."""
    figures, names, found = e["figures"], e["class_names"], []
    if calibration := figures.get("calibration"):
        bins = {"": [(each["confidence"], each["accuracy"]) for each in calibration["bins"]]}
        told = f"Of answers that are this sure, so many are right; the expected calibration error is {calibration['ece']:.4f}."
        found.append(_plot("calibration", told, ("confidence", "share that is right"), bins, marker="o"))
    if roc := figures.get("roc"):
        told = f"Share of {names[1]} that is found, against the share of {names[0]} that is taken for it."
        found.append(_plot("ROC curve", told, ("false positives", "true positives"), {"": roc}))
    if curve := figures.get("precision_recall"):
        told = f"Precision against recall of {names[1]}; the average precision is {curve['average_precision']:.4f}."
        found.append(
            _plot("precision and recall", told, ("recall", "precision"), {"": curve["points"]}, diagonal=False)
        )
    if rows := figures.get("thresholds"):
        best = max(rows, key=lambda row: row["f1"] or 0.0)
        told = f"{names[1]} is said above the threshold; F1 is highest, {shown(best['f1'])}, at {best['threshold']}."
        lines = {
            key: [(row["threshold"], row[key]) for row in rows if row[key] is not None]
            for key in ("precision", "recall", "f1")
        }
        found.append(_plot("by threshold", told, ("threshold", ""), lines, diagonal=False))
    for each in figures.get("residuals", ()):
        at = {float(quantile): value for quantile, value in each["quantiles"].items()}
        off = f"{at[0.25]:.4g} to {at[0.75]:.4g}, in the median by {at[0.5]:.4g}"
        told = f"Half of what is predicted of {each['name']} is off by {off}."
        title, labels = f"residuals of {each['name']}", ("share of the records", "predicted minus true")
        found.append(_plot(title, told, labels, {"": list(at.items())}, marker="o", diagonal=False, shares=False))
    return found


def _plot(
    title: str,
    told: str,
    labels: tuple[str, str],
    lines: Mapping[str, Sequence[Sequence[float]]],
    *,
    marker: str = "",
    diagonal: bool = True,
    shares: bool = True,
) -> markupsafe.Markup:
    """Of lines by their labels, each points with x, a share, and y, one too if `shares`; what else a point has is not drawn."""

    def draw(figure: Any) -> None:
        axes = figure.add_subplot(
            xlabel=labels[0], ylabel=labels[1], xlim=_SHARES, **({"ylim": _SHARES} if shares else {})
        )
        for label, points in lines.items():
            axes.plot([point[0] for point in points], [point[1] for point in points], marker=marker, label=label)
        if diagonal:
            axes.plot([0, 1], [0, 1], color=plots.SOFT, linestyle="--", linewidth=1)
        if len(lines) > 1:
            axes.legend(loc="lower center", ncols=len(lines))

    return plots.plot(title, told, draw)
