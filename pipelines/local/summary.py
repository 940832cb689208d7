"""Writes the `summary.json` of a run, and the page that shows it."""

import json
import os
import pathlib
import re
import shutil
from typing import Any

from common.pages import render_page, templates
from common.storage.files import write_text
from components.convert.output import PAGE
from components.evaluate.report import section
from components.predict.options import RUN_FILE
from components.register.directory import DirectoryRegistry
from components.register.registry import CHAMPION
from pipelines.local.progress import FAILED, Progress
from pipelines.local.record import RunRecord, read_or_empty
from trainer.job import done

FILE, REPORT, EVALUATION = "summary.json", "report.html", "evaluation.json"
TEMPLATES = templates("pipelines")
# Errors that the user can repair, as steps and replicas report them.
_REPAIRABLE = re.compile(r"(?:UserError: |^\S+ \| error: )(.*)", re.MULTILINE)
_LAST_LINES = 12


def mistakes(output: str) -> list[str]:
    """Returns the errors that the user can repair, in the output of a step or of a training.

    They are in their order there, perhaps repeated, without the words in front of them.
    """
    return _REPAIRABLE.findall(output)


def shown(path: str | os.PathLike[str]) -> str:
    """Returns a path as a person would type it: relative if it lies below the working directory."""
    path = os.fspath(path)
    return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path


TEMPLATES.filters["shown"] = shown


def write(record: RunRecord, progress: Progress, status: str, seconds: float) -> dict[str, Any]:
    """Writes `summary.json` and `report.html` from the files of a run.

    Also copies the newest evaluation to `evaluation.json` in the run's directory.

    Args:
      record: Record of the run.
      progress: Its steps, which have ended.
      status: `succeeded`, `failed` or `interrupted`.
      seconds: Duration of this attempt.

    Returns:
      The content of `summary.json`. Its `reason` is the last error that the user can repair in the
      log of a step that failed, with the step's name; None without one, and if `status` is not
      `failed`.

    Raises:
      OSError: If a file cannot be written.
    """
    run_dir = record.dir
    # There may be several, since a resume may evaluate again. The newest counts.
    if evaluations := sorted(run_dir.glob("artifacts/*/evaluate/evaluation"), key=os.path.getmtime):
        shutil.copyfile(evaluations[-1], run_dir / EVALUATION)
    evaluation = read_or_empty(run_dir / EVALUATION)
    decision = evaluation.get("decision", {})
    failed = progress.first(FAILED)
    log = progress.log(failed)
    # After a failure the page shows the end of the step's log, or of the run's if no step failed.
    output = log.read_text(encoding="utf-8") if status != "succeeded" and log.exists() else ""
    reasons = mistakes(output) if failed and status == "failed" else []
    name = record.arguments["name"]
    registry = DirectoryRegistry(record.arguments["registry"])
    version = registry.version_of(name, record.id)
    dataset, job = pathlib.Path(record.arguments["dataset_dir"]), run_dir / "job"
    paths = {
        "logs": run_dir / "logs",
        "dataset": dataset,
        "dataset_page": dataset / PAGE,
        "job": job,
        "evaluation": run_dir / EVALUATION,
        "predictions": run_dir / RUN_FILE,
    }
    summary = {
        "run": record.id,
        "status": status,
        "reason": f"step {failed.name}: {reasons[-1]}" if failed and reasons else None,
        "failed_step": failed and failed.name,
        "log": str(log),
        "last_lines": [line for line in output.splitlines() if line.strip()][-_LAST_LINES:],
        "seconds": round(seconds, 1),
        "steps": [
            {"name": step.name, "status": step.status, "seconds": round(step.seconds, 1)}
            for step in progress.steps.values()
        ],
        "metrics": evaluation.get("metrics", {}),
        "throughput": {"examples_per_s": read_or_empty(job / done.FILE).get("examples_per_s")},
        "model": {
            "name": name,
            "version": version,
            "champion": registry.aliases(name).get(CHAMPION),
            "verdict": decision.get("verdict"),
            "why": decision.get("why"),
        },
        "paths": {
            "report": str(run_dir / REPORT),
            **{what: str(path) for what, path in paths.items() if path.exists()},
            **({"model": registry.find(name, version).model_dir} if version else {}),
        },
        "arguments": dict(record.arguments),
    }
    write_text(run_dir / FILE, json.dumps(summary, indent=1) + "\n")
    body = TEMPLATES.get_template("run.html").render(
        s=summary,
        links={what: os.path.relpath(path, run_dir) for what, path in summary["paths"].items()},
        logs=sorted(path.name for path in (run_dir / "logs").glob("*.log")),
        evaluation=section(evaluation, str(job)),
        registry=registry,
    )
    write_text(run_dir / REPORT, render_page(f"Run {record.id}", body))
    return summary
