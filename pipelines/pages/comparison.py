"""Two runs side by side as a page: what came of each, how well both do on the test split, and what was set otherwise."""

import os
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from components.evaluate.page.attempts import Job
from components.evaluate.page.curves import overlaid
from components.evaluate.page.frame import render_page
from components.register.comparison import rows
from components.undefined import figure
from pipelines.local import summary
from pipelines.local.history import COMPARISONS, PAGE, Run
from pipelines.local.record import read_if_whole
from trainer.base.files import write_text


def default_page(runs: Sequence[Run]) -> pathlib.Path:
    """Where it is looked for: beside the list of all runs."""
    return runs[0].dir.parent / COMPARISONS.replace("*", "-".join(run.dir.name for run in runs))


def pages_of(run_dir: pathlib.Path) -> list[pathlib.Path]:
    """The pages beside the list of all runs that lead to this one."""
    link = f'href="{urllib.parse.quote(run_dir.name)}/'
    return [page for page in run_dir.parent.glob(COMPARISONS) if link in page.read_text(encoding="utf-8")]


def write(runs: Sequence[Run], page: pathlib.Path) -> str:
    """Writes the page of two runs, with relative links, which hold when all is moved together; returns it in a sentence."""
    evaluations = [read_if_whole(run.dir / summary.EVALUATION) for run in runs]
    names = [run.dir.name for run in runs]
    reports = [run.dir / summary.REPORT for run in runs]
    links = [os.path.relpath(report, page.parent) if report.exists() else None for report in reports]
    sentence = said(names, evaluations)
    body = summary.TEMPLATES.get_template("compare.html").render(
        heads=list(zip(names, links, strict=True)),
        index=PAGE if page.parent == runs[0].dir.parent else None,
        said=sentence,
        rows=[run.row for run in runs],
        summaries=[run.summary for run in runs],
        intervals=[evaluation.get("intervals", {}).get("candidate", {}) for evaluation in evaluations],
        plots=overlaid(names, [Job.load(str(run.dir / "job")) for run in runs]),
        settings=list(rows(*(run.settings for run in runs))),
    )
    write_text(page, render_page(" and ".join(names), body))
    return sentence


def said(names: Sequence[str], evaluations: Sequence[Mapping[str, Any]]) -> str:
    """The comparison in one sentence, which claims no more than the figures do."""
    metrics = [evaluation.get("metrics", {}) for evaluation in evaluations]
    if missing := [name for name, measured in zip(names, metrics, strict=True) if not measured]:
        return f"There is nothing to compare: {' and '.join(missing)} came to no test metrics."
    judged = [[*map(e.get, ("fingerprint", "split", "metric")), e["metrics"]["examples"]] for e in evaluations]
    if judged[0] != judged[1]:
        return "Their test metrics are of different records, or of different tasks, and do not say which is better."
    _, _, metric, examples = judged[0]
    values = " and ".join(f"{figure(m[metric])} for {name}" for name, m in zip(names, metrics, strict=True))
    text = f"On the same {examples:,} test records {metric} is {values}"
    if all(ends := [each.get("intervals", {}).get("candidate", {}).get(metric) for each in evaluations]):
        (low, high), (least, most) = ends
        text += f"; the 95 % intervals {'overlap' if low <= most and least <= high else 'lie apart'}"
    return f"{text}."
