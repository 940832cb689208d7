"""Runs of a directory, read from their files."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from common.errors import UserError, unknown
from common.pages import figure, render_page
from common.storage.files import write_text
from components.cleanup.cleanup import is_running
from pipelines.local import summary
from pipelines.local.record import FILE, RunRecord, read_or_empty

COLUMNS = ("run", "status", "verdict", "metric", "version", "dataset", "cluster", "seconds")
PAGE = "index.html"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run, as it was when it was read."""

    dir: pathlib.Path
    row: Mapping[str, str]  # by `COLUMNS`; empty where nothing is known
    record: RunRecord | None = None  # None if the run is broken
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # empty before the run has ended


def list_runs(runs_dir: pathlib.Path) -> list[Run]:
    """Returns the runs of a directory, the oldest first."""
    if not runs_dir.is_dir():
        raise UserError(f"--runs-dir {runs_dir}: no such directory")
    run_dirs = sorted(path.parent for path in runs_dir.glob(f"[!.]*/{FILE}"))
    return [read(path) for path in run_dirs if not path.is_symlink()]


def find(name: str, runs_dir: pathlib.Path) -> Run:
    """Returns the run of that id in `runs_dir`, or at that path."""
    run_dir = next((path for path in (runs_dir / name, pathlib.Path(name)) if (path / FILE).is_file()), None)
    if run_dir is None:
        raise unknown("run", name, [run.dir.name for run in list_runs(runs_dir)])
    run = read(run_dir.resolve())
    if run.record is None:
        raise UserError(f"{run_dir}: its {FILE} or {summary.FILE} is none of ours, or damaged")
    return run


def read(run_dir: pathlib.Path) -> Run:
    """Returns the run in a directory with a `run.json`; it is `broken` if that, or its summary, is unusable.

    A run without a summary is `running`, or `killed`: its process is gone and could not write one.
    """
    try:
        record = RunRecord.load(run_dir)
        result = read_or_empty(run_dir / summary.FILE)  # a resume deletes it first
        model = result.get("model", {})
        metrics = result.get("metrics", {})
        metric = read_or_empty(run_dir / summary.EVALUATION).get("metric")  # decided the verdict
        row = {
            "run": run_dir.name,
            "status": result.get("status") or ("running" if is_running(run_dir) else "killed"),
            "verdict": model.get("verdict"),
            "metric": f"{metric} {figure(metrics[metric])}" if metric in metrics else "",
            "version": model.get("version"),
            "dataset": record.dataset,
            "cluster": record.cluster,
            "seconds": result.get("seconds"),
        }
        cells = {name: str(cell or "") for name, cell in row.items()}
        return Run(dir=run_dir, row=cells, record=record, summary=result)
    except (OSError, ValueError, TypeError, AttributeError):
        return Run(dir=run_dir, row=dict.fromkeys(COLUMNS, "") | {"run": run_dir.name, "status": "broken"})


def write_page(runs_dir: pathlib.Path) -> None:
    """Writes `index.html`: the runs, the newest first, with links to their pages."""
    rows = [(run.row, (run.dir / summary.REPORT).exists()) for run in reversed(list_runs(runs_dir))]
    body = summary.TEMPLATES.get_template("runs.html").render(columns=COLUMNS, rows=rows)
    write_text(runs_dir / PAGE, render_page("Runs", body))
