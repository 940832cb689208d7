"""The evaluation as a page: figures, the decision with its reasons, the ROC curve of two classes, the confusion matrix."""

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import markupsafe

from components.undefined import figure


def templates(package: str) -> jinja2.Environment:
    """The templates of a package: HTML, where what is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["figure"] = figure
    return made


_TEMPLATES = templates("components.evaluate")
_NAMES = {
    "auc": "AUC (area under the ROC curve)",
    "mae": "mean absolute error",
    "mse": "mean squared error",
    "r2": "R² (coefficient of determination)",
    "rmse": "root mean squared error",
}


def section(evaluation: Mapping[str, Any]) -> markupsafe.Markup:
    """The part of a page that shows an evaluation (the content of `evaluation.json`)."""
    roc = _line(evaluation["figures"].get("roc", ()))
    return markupsafe.Markup(
        _TEMPLATES.get_template("evaluation.html").render(e=evaluation, shade=_shade, roc=roc, names=_NAMES)
    )


def page(evaluation: Mapping[str, Any]) -> str:
    """A whole page of one evaluation."""
    return render_page(f"Evaluation of {evaluation['dataset']}", section(evaluation))


def render_page(title: str, body: str) -> str:
    """The frame of every page of ours: one file, no scripts, readable in light and dark."""
    return _TEMPLATES.get_template("page.html").render(title=title, body=body)


def summary(evaluation: Mapping[str, Any]) -> str:
    """The evaluation in a few lines of Markdown."""
    metrics, decision = evaluation["metrics"], evaluation["decision"]
    rows = [("candidate", metrics), (evaluation["baseline"]["rule"], evaluation["baseline"])]
    if (champion := evaluation["champion"]) and champion["metrics"]:
        where = f", on {champion['examples']:,} records" if champion.get("candidate") else ""
        rows.append((f"champion (version {champion['version']}){where}", champion["metrics"]))
        rows += [(f"candidate{where}", champion["candidate"])] if where else []
    names = [name for name in metrics if name != "examples"]
    lines = [("model", *names), ("---",) * (len(names) + 1)]
    lines += [(who, *(figure(figures[name]) for name in names)) for who, figures in rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    reasons = "\n".join(f"- {reason}" for reason in decision["reasons"])
    return f"## {decision['verdict']}\n\n{table}\n\n{reasons}\n"


def _line(roc: Sequence[Sequence[float]], side: int = 200) -> str:
    """The ROC curve as points of an SVG polyline in a square."""
    return " ".join(f"{side * x:.1f},{side - side * y:.1f}" for x, y, _ in roc)


def _shade(count: int, row: list[int]) -> str:
    """How dark a cell of the confusion matrix is: its share of the true class, 0 to 1."""
    return f"{count / max(sum(row), 1):.3f}"
