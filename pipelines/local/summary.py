"""`summary.json` of a run, and the page that shows it."""

import json
import os
import pathlib
import shutil
import time
from typing import Any

from common.manifest import Manifest
from common.pages import render_page, templates
from common.storage.files import write_text
from components.convert.writing.output import PAGE
from components.evaluate.report import section, training_section
from components.register.registry import Registry
from pipelines.local.record import RunRecord
from pipelines.local.steps import Steps
from trainer.job import done

FILE, REPORT, EVALUATION = "summary.json", "report.html", "evaluation.json"
TEMPLATES = templates("pipelines")


def write(
    run_dir: pathlib.Path, record: RunRecord, steps: Steps, status: str, seconds: float, reason: str | None
) -> dict[str, Any]:
    """Writes `summary.json`, which is returned, and `report.html` from what the run left.

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
            "job": str(job) if job.exists() else None,
            "evaluation": str(run_dir / EVALUATION) if evaluation else None,
            "model": registry.model_dir(name, version) if version else None,
        },
        "arguments": dict(record.arguments),
    }
    write_text(run_dir / FILE, json.dumps(summary, indent=1) + "\n")
    failed = steps.failed
    body = TEMPLATES.get_template("run.html").render(
        s=summary,
        links={what: os.path.relpath(path, run_dir) for what, path in summary["paths"].items() if path},
        logs=sorted(path.name for path in (run_dir / "logs").glob("*.log")),
        place=os.path.relpath(run_dir) if run_dir.is_relative_to(pathlib.Path.cwd()) else run_dir,
        failed=failed and failed.name,
        tail=steps.log(failed).read_text(encoding="utf-8").rstrip().splitlines()[-12:] if failed else (),
        evaluation=section(evaluation) if evaluation else "",
        training=training_section(str(job)),
        splits=Manifest.load(page.parent).splits if page.exists() else {},
        versions={v: registry.facts(name, v) for v in registry.versions(name)[:-21:-1]},
        aliases={version: alias for alias, version in reversed(registry.aliases(name).items())},
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
