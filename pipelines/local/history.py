"""Runs of a directory, read from their files: what each is to do, and its outcome."""

import dataclasses
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from common.errors import UserError, reading, unknown
from common.pages import figure, render_page
from common.storage.files import write_text
from components.cleanup.cleanup import is_running
from pipelines.local import summary
from pipelines.local.cache import STORE
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

    @property
    def settings(self) -> dict[str, Any]:
        """All that decided the outcome, with values as the training resolved them once it began."""
        arguments = self.record.arguments
        with reading(f"{FILE} or job/job.json of {self.dir}"):
            job = read_or_empty(self.dir / "job" / "job.json")
            values = _flatten({
                "name": arguments["name"],
                **{name: " ".join(arguments[name]) for name in ("convert_args", "trainer_args", "evaluate_args")},
                "cluster": json.loads(arguments["cluster"]),
                "dataset": job.get("arguments"),
                "version": job.get("versions"),
                **job.get("settings", {}),
                "fingerprint": job.get("identity", {}).get("fingerprint"),
                "last_step": read_or_empty(self.dir / "job" / "DONE.json").get("step"),
            })  # fmt: skip
        return {name: value for name, value in values.items() if value not in (None, "")}


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
            "version": model.get("version") and f"{model['name']} {model['version']}",
            "dataset": record.dataset,
            "cluster": record.cluster,
            "seconds": "seconds" in result and f"{result['seconds']:.1f}",
        }
        return Run(
            dir=run_dir, row={name: str(cell or "") for name, cell in row.items()}, record=record, summary=result
        )
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        return Run(dir=run_dir, row=dict.fromkeys(COLUMNS, "") | {"run": run_dir.name, "status": "broken"})


def unused_datasets(runs_dir: pathlib.Path, without: Collection[pathlib.Path] = ()) -> list[pathlib.Path]:
    """Returns the datasets of the store that no run refers to, when those `without` are not counted."""
    used = set()
    for run in list_runs(runs_dir):
        if run.dir not in without:
            if run.record is None:
                raise UserError(f"{run.dir} cannot be read; until it can, or is gone, its dataset is not known")
            used.add(pathlib.Path(run.record.arguments["dataset_dir"]).name)  # the directory may have been moved
    return sorted(path for path in (runs_dir / STORE).glob("*") if path.is_dir() and path.name not in used)


def write_page(runs_dir: pathlib.Path) -> None:
    """Writes `index.html`: the runs, the newest first, with links to their pages."""
    rows = [(run.row, (run.dir / summary.REPORT).exists()) for run in reversed(list_runs(runs_dir))]
    body = summary.TEMPLATES.get_template("runs.html").render(columns=COLUMNS, rows=rows)
    write_text(runs_dir / PAGE, render_page("Runs", body))


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the values of nested mappings by their paths, with dots between keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
