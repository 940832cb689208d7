"""Report of an evaluation: an HTML page with the decision, figures and plots."""

from collections.abc import Mapping
from typing import Any

import markupsafe

from common.pages import figure, render_page, templates
from components.evaluate.gate import OUTCOMES
from components.evaluate.plots import evaluation_plots, learning_curves

_NAMES = {
    "auc": "AUC (area under the ROC curve)",
    "mae": "mean absolute error",
    "mse": "mean squared error",
    "r2": "R² (coefficient of determination)",
    "rmse": "root mean squared error",
}


def section(evaluation: Mapping[str, Any], job_dir: str = "") -> markupsafe.Markup:
    """Returns the part of a page that shows an evaluation and the learning curves of a job.

    Args:
      evaluation: The content of `evaluation.json`; if it is empty, only the curves are shown.
      job_dir: Directory of the job, whose journals have the learning curves; may be empty.
    """
    of_evaluation = (
        {"rivals": _rivals(evaluation), "plots": evaluation_plots(evaluation)} if evaluation else {}
    )
    template = templates("components.evaluate").get_template("report.html")
    known = {"names": _NAMES, "outcomes": OUTCOMES, "curves": learning_curves(job_dir)}
    return markupsafe.Markup(template.render(e=evaluation, **known, **of_evaluation))


def page(evaluation: Mapping[str, Any], job_dir: str = "") -> str:
    """Returns the page of one evaluation as HTML.

    Args:
      evaluation: The content of `evaluation.json`.
      job_dir: Directory of the job that made the model, for its learning curves; may be empty.
    """
    return render_page(f"Evaluation of {evaluation['dataset']}", section(evaluation, job_dir))


def summary(evaluation: Mapping[str, Any]) -> str:
    """Returns an evaluation as Markdown: the verdict, a table of metrics, and the reasons."""
    metrics, decision = evaluation["metrics"], evaluation["decision"]
    names = [name for name in metrics if name != "examples"]
    lines = [("model", *names), ("---",) * (len(names) + 1)]
    lines += [
        (who, *(figure(figures[name]) for name in names)) for who, figures in _rivals(evaluation)
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    reasons = "\n".join(f"- {reason}" for reason in decision["reasons"])
    return f"## {decision['verdict']}\n\n{table}\n\n{reasons}\n"


def _rivals(e: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns name and metrics of each row of the table of metrics.

    The candidate comes first, then the champion if it was compared, and then the baseline. If the
    champion was measured on fewer records, the candidate's metrics on those have a row too.
    """
    rivals = [("candidate", e["metrics"])]
    if (champion := e["champion"]) and champion["metrics"]:
        where = ""
        if champion["candidate"]:
            where = f", on {champion['examples']:,} records"
            rivals.append((f"candidate{where}", champion["candidate"]))
        rivals.append((f"champion (version {champion['version']}){where}", champion["metrics"]))
    return [*rivals, (e["baseline"]["rule"], e["baseline"])]
