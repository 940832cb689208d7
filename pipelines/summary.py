"""`summary.json` of a run, and the page that shows it."""

import json
import os
import pathlib
import shutil
import time
from typing import Any

from components.convert.writing.output import PAGE
from components.evaluate.gate import TOLD
from components.evaluate.report import render_page, section, templates
from components.register.registry import Registry
from pipelines.record import RunRecord
from pipelines.steps import Steps
from trainer.base.files import write_text
from trainer.job_dir import done, journal

FILE, REPORT, EVALUATION = "summary.json", "report.html", "evaluation.json"
TEMPLATES = templates("pipelines")


def write(
    run_dir: pathlib.Path, record: RunRecord, steps: Steps, status: str, seconds: float, reason: str | None
) -> dict[str, Any]:
    """Gathers what the run left and writes `summary.json` and `report.html`. Returns the summary.

    `status` is `succeeded`, `failed` or `interrupted`; `reason`, why it failed, if that is the user's to mend.
    """
    evaluation = _evaluation(run_dir)
    decision = evaluation.get("decision", {})
    job, page = run_dir / "job", pathlib.Path(record.arguments["dataset_dir"], PAGE)
    finished = done.load(str(job))
    name, registry = record.arguments["name"], Registry(record.arguments["registry"])
    version = registry.version_of(name, record.id)
    champion, gone = registry.standing(name, but=version or "")
    summary = {
        "run": record.id,
        "status": status,
        "reason": reason,
        "seconds": round(seconds, 1),
        "steps": [{"name": s.name, "status": s.status, "seconds": round(s.seconds, 1)} for s in steps.seen.values()],
        "metrics": evaluation.get("metrics", {}),
        "throughput": {"examples_per_s": finished.examples_per_s if finished else None},
        "model": {
            "name": name,
            "version": version,
            "champion": champion,
            "passed_over": gone,
            "verdict": decision.get("verdict"),
            "why": decision.get("why"),
        },
        "paths": {
            "report": str(run_dir / REPORT),
            "logs": str(run_dir / "logs"),
            "dataset": str(page.parent) if page.exists() else None,
            "dataset_page": str(page) if page.exists() else None,
            "job": str(job),
            "evaluation": str(run_dir / EVALUATION) if evaluation else None,
            "model": registry.model_dir(name, version) if version else None,
        },
        "arguments": dict(record.arguments),
    }
    write_text(run_dir / FILE, json.dumps(summary, indent=1) + "\n")
    lines = journal.events(job, "chief-0") if job.exists() else ()
    points = [(line["step"], line["loss"]) for line in lines if line["event"] == "step"]
    body = TEMPLATES.get_template("run.html").render(
        s=summary,
        links={what: os.path.relpath(path, run_dir) for what, path in summary["paths"].items() if path},
        metric=evaluation.get("metric"),
        told=TOLD,
        curve=_curve(points[::-1]) if len(points) > 1 else None,
        evaluation=section(evaluation) if evaluation else "",
        written=time.strftime("%Y-%m-%d %H:%M"),
    )
    write_text(run_dir / REPORT, render_page(f"Run {record.id}", body))
    return summary


def _evaluation(run_dir: pathlib.Path) -> dict[str, Any]:
    """The evaluation that the step left among its artifacts, kept in the run's directory; empty if it left none."""
    found = run_dir.glob("artifacts/*/evaluate/evaluation")
    if newest := max(found, key=lambda path: path.stat().st_mtime, default=None):  # a resume may have evaluated again
        shutil.copyfile(newest, run_dir / EVALUATION)
        return json.loads(newest.read_text(encoding="utf-8"))
    return {}


def _curve(points: list[tuple[int, float]]) -> dict[str, Any]:
    """A line through (step, loss) as SVG coordinates, loss from 0."""
    width, height = 640, 160
    last, top = max(step for step, _ in points), max(loss for _, loss in points) or 1.0
    line = " ".join(f"{step / last * width:.1f},{height - loss / top * height:.1f}" for step, loss in points)
    return {"line": line, "width": width, "height": height, "last": last, "top": top}
