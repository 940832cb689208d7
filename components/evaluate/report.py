"""The evaluation as a page: figures, the decision with its reasons, the ROC curve of two classes, the confusion matrix."""

from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe

from components.evaluate.page.attempts import Job
from components.evaluate.page.curves import curves
from components.evaluate.page.frame import TEMPLATES, render_page
from components.evaluate.page.timeline import timeline
from components.evaluate.page.usage import usage
from components.undefined import figure

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
        TEMPLATES.get_template("evaluation.html").render(e=evaluation, shade=_shade, roc=roc, names=_NAMES)
    )


def training_section(job_dir: str) -> markupsafe.Markup:
    """The part of a page that shows what the journals of a job tell: learning curves, what each replica did and used."""
    job = Job.load(job_dir)
    return markupsafe.Markup(
        TEMPLATES.get_template("training.html").render(curves=curves(job), timeline=timeline(job), usage=usage(job))
    )


def page(evaluation: Mapping[str, Any], job_dir: str = "") -> str:
    """A whole page of one evaluation, and of the job that made the model, if its directory is known."""
    training = training_section(job_dir) if job_dir else ""
    return render_page(f"Evaluation of {evaluation['dataset']}", section(evaluation) + training)


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
