"""The evaluation as a page: the decision with its reasons, figures, plots, and how the model came to be."""

from collections.abc import Mapping
from typing import Any

import markupsafe

from common.pages import figure, render_page, templates
from components.evaluate.gate import TOLD
from components.evaluate.page.attempts import Job
from components.evaluate.page.curves import curves
from components.evaluate.page.judged import judged

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
    known = {"rivals": _rivals(evaluation), "plots": judged(evaluation), "names": _NAMES, "told": TOLD}
    return markupsafe.Markup(_TEMPLATES.get_template("evaluation.html").render(e=evaluation, **known))


def training_section(job_dir: str) -> markupsafe.Markup:
    """The part of a page that shows what the journals of a job tell: learning curves, and attempts of its replicas."""
    job = Job.load(job_dir)
    template = _TEMPLATES.get_template("training.html")
    return markupsafe.Markup(template.render(curves=curves(job), replicas=job.replicas))


def page(evaluation: Mapping[str, Any], job_dir: str = "") -> str:
    """A whole page of one evaluation, and of the job that made the model, if its directory is known."""
    training = training_section(job_dir) if job_dir else ""
    return render_page(f"Evaluation of {evaluation['dataset']}", section(evaluation) + training)


def summary(evaluation: Mapping[str, Any]) -> str:
    """The evaluation in a few lines of Markdown."""
    metrics, decision = evaluation["metrics"], evaluation["decision"]
    names = [name for name in metrics if name != "examples"]
    lines = [("model", *names), ("---",) * (len(names) + 1)]
    lines += [(who, *(figure(figures[name]) for name in names)) for who, figures in _rivals(evaluation)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    reasons = "\n".join(f"- {reason}" for reason in decision["reasons"])
    return f"## {decision['verdict']}\n\n{table}\n\n{reasons}\n"


def _rivals(e: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the names and metrics of all that were measured, the candidate first."""
    rivals = [("candidate", e["metrics"])]
    if (champion := e["champion"]) and champion["metrics"]:
        where = f", on {champion['examples']:,} records" if champion.get("candidate") else ""
        rivals += [(f"candidate{where}", champion["candidate"])] if where else []
        rivals.append((f"champion (version {champion['version']}){where}", champion["metrics"]))
    return [*rivals, (e["baseline"]["rule"], e["baseline"])]
