"""`summary.json` of a run, and the page that shows it."""

import contextlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Mapping
from typing import Any

import markupsafe

from components.convert.writing.output import PAGE
from components.evaluate.gate import TOLD
from components.evaluate.report import render_page, section, templates
from components.register.registry import Registry
from pipelines.record import RunRecord
from pipelines.steps import Steps
from trainer.base.files import write_text
from trainer.job_dir import done

FILE, REPORT, EVALUATION = "summary.json", "report.html", "evaluation.json"
TEMPLATES = templates("pipelines")


def write(
    run_dir: pathlib.Path, record: RunRecord, steps: Steps, status: str, seconds: float, reason: str | None
) -> dict[str, Any]:
    """Gathers what the run left and writes `summary.json` and `report.html`. Returns the summary.

    `status` is `succeeded`, `failed` or `interrupted`; `reason`, why it failed, if that is the user's to mend.
    """
    evaluation = _evaluation(run_dir)
    journal = _journal(run_dir / "job")
    finished = done.load(str(run_dir / "job"))
    dataset = next((e["data_dir"] for e in journal if "data_dir" in e), None)
    name, registry = record.arguments["name"], Registry(record.arguments["registry"])
    version = registry.version_of(name, record.id)
    champion, gone = registry.standing(name, but=version or "")
    summary = {
        "run": record.id,
        "status": status,
        "reason": reason,
        "seconds": round(seconds, 1),
        "steps": [{"name": s.name, "status": s.status, "seconds": round(s.seconds, 1)} for s in steps.seen.values()],
        "metrics": evaluation["metrics"] if evaluation else {},
        "throughput": {"examples_per_s": finished.examples_per_s if finished else None},
        "model": {
            "name": name,
            "version": version,
            "champion": champion,
            "passed_over": gone,
            "verdict": evaluation["decision"]["verdict"] if evaluation else None,
            "why": evaluation["decision"]["why"] if evaluation else None,
        },
        "paths": {
            "report": str(run_dir / REPORT),
            "logs": str(run_dir / "logs"),
            "dataset": dataset,
            "dataset_page": f"{dataset}/{PAGE}" if dataset else None,
            "job": str(run_dir / "job"),
            "evaluation": str(run_dir / EVALUATION) if evaluation else None,
            "model": registry.model_dir(name, version) if version else None,
        },
        "arguments": dict(record.arguments),
    }
    write_text(run_dir / FILE, json.dumps(summary, indent=1) + "\n")
    write_text(run_dir / REPORT, _page(summary, evaluation, journal))
    return summary


def _evaluation(run_dir: pathlib.Path) -> dict[str, Any] | None:
    """The evaluation that the step left among its artifacts, kept in the run's directory."""
    found = run_dir.glob("artifacts/*/evaluate/evaluation")
    for artifact in sorted(found, key=lambda path: path.stat().st_mtime)[-1:]:  # a resume may have evaluated again
        shutil.copyfile(artifact, run_dir / EVALUATION)
        return json.loads(artifact.read_text(encoding="utf-8"))
    return None


def _journal(job_dir: pathlib.Path) -> list[dict[str, Any]]:
    """The chief's events over all its attempts, in the order of time."""
    events = []
    for line in (line for path in job_dir.glob("journal-chief-0-*.jsonl") for line in path.read_text().splitlines()):
        with contextlib.suppress(ValueError):  # half a line, of a replica that was killed
            events.append(json.loads(line))
    return sorted(events, key=lambda event: event["time"])


def _page(summary: Mapping[str, Any], evaluation: Mapping[str, Any] | None, journal: list[dict[str, Any]]) -> str:
    points = [(e["step"], e["loss"]) for e in journal if e["event"] == "step"]
    here = os.path.dirname(summary["paths"]["report"])
    body = TEMPLATES.get_template("run.html").render(
        s=summary,
        links={what: os.path.relpath(path, here) for what, path in summary["paths"].items() if path},
        metric=evaluation["metric"] if evaluation else None,
        told=TOLD,
        curve=_curve(points) if len(points) > 1 else None,
        evaluation=section(evaluation) if evaluation else "",
        written=time.strftime("%Y-%m-%d %H:%M"),
    )
    return render_page(f"Run {summary['run']}", markupsafe.Markup(body))


def _curve(points: list[tuple[int, float]], width: int = 640, height: int = 160) -> dict[str, Any]:
    """A line through (step, loss) as SVG coordinates, loss from 0."""
    last, top = max(step for step, _ in points), max(loss for _, loss in points) or 1.0
    line = " ".join(f"{step / last * width:.1f},{height - loss / top * height:.1f}" for step, loss in points)
    return {"line": line, "width": width, "height": height, "last": last, "top": top}
