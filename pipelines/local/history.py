"""The runs of a directory, as their files tell: what each was to do, and what became of it."""

import dataclasses
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from common.errors import UserError, unknown
from common.pages import figure, render_page
from common.storage.files import write_text
from components.cleanup.processes import running
from pipelines.local import summary
from pipelines.local.cache import STORE
from pipelines.local.record import FILE, RunRecord, read_if_whole

RUNNING, SUCCEEDED, BROKEN = "running", "succeeded", "broken"
KILLED = "killed"  # Without a word: the process that drove it is gone, and left no summary.
PAGE = "index.html"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One run, as it was when it was read."""

    dir: pathlib.Path
    status: str  # That of its summary, or `running`, `killed`, or `broken` when `run.json` cannot be read.
    record: RunRecord | None = None
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # Empty before it has ended.

    def mentions(self, other: "Run") -> bool:
        """Whether what this one was asked to do names files of the other, as `--init-from` does."""
        return f"/{other.dir.name}/" in (self.dir / FILE).read_text(encoding="utf-8", errors="replace")

    @property
    def settings(self) -> dict[str, Any]:
        """All that decided what came of it, once training has begun with the values it resolved; none is None."""
        arguments, job = self.record.arguments, read_if_whole(self.dir / "job" / "job.json")
        found = {
            **_flat(json.loads(arguments["cluster"]), "cluster"),
            **_flat(job.get("arguments", {}), "dataset"),
            **_flat(job.get("versions", {}), "version"),
            **job.get("settings", {what: " ".join(arguments[f"{what}_args"]) for what in ("convert", "trainer")}),
            "fingerprint": job.get("identity", {}).get("fingerprint"),
            "last_step": read_if_whole(self.dir / "job" / "DONE.json").get("step"),
            "name": arguments["name"],
            "evaluate": " ".join(arguments["evaluate_args"]),
        }
        return {name: value for name, value in found.items() if value not in (None, "")}

    @property
    def row(self) -> dict[str, str]:
        """What there is to say of it in a line; texts, empty where nothing is known."""
        model, record = self.summary.get("model", {}), self.record
        metrics = self.summary.get("metrics", {})
        metric = read_if_whole(self.dir / summary.EVALUATION).get("metric")  # what it was judged by, if it was
        return {
            "run": self.dir.name,
            "status": self.status,
            "verdict": model.get("verdict") or "",
            "metric": f"{metric} {figure(metrics[metric])}" if metric in metrics else "",
            "version": f"{model['name']} {model['version']}" if model.get("version") else "",
            "dataset": record.dataset if record else "",
            "cluster": record.cluster if record else "",
            "seconds": f"{self.summary['seconds']:.1f}" if self.summary else "",
        }


def runs_in(runs_dir: pathlib.Path) -> list[Run]:
    """The runs there, the oldest first; what is something else is passed over."""
    if not runs_dir.is_dir():
        raise UserError(f"--runs-dir {runs_dir}: no such directory")
    found = sorted(path.parent for path in runs_dir.glob(f"[!.]*/{FILE}"))
    return [read(path) for path in found if not path.is_symlink()]


def find(name: str, runs_dir: pathlib.Path) -> Run:
    """The run of that id in `runs_dir`, or at that path."""
    place = next((path for path in (runs_dir / name, pathlib.Path(name)) if (path / FILE).is_file()), None)
    if place is None:
        raise unknown("run", name, [run.dir.name for run in runs_in(runs_dir)])
    run = read(place.resolve())
    if run.record is None:
        raise UserError(f"{place}: its {FILE} is none of ours, or damaged")
    return run


def read(run_dir: pathlib.Path) -> Run:
    """What a directory with a `run.json` tells."""
    try:
        record, runs = RunRecord.load(run_dir), running(run_dir)
    except (OSError, ValueError, TypeError):
        return Run(dir=run_dir, status=BROKEN)
    told = read_if_whole(run_dir / summary.FILE)
    status = told.get("status") or (RUNNING if runs else KILLED)  # a resume deletes the summary first
    return Run(dir=run_dir, status=status, record=record, summary=told)


def unused(runs_dir: pathlib.Path, but: Collection[pathlib.Path]) -> list[pathlib.Path]:
    """Datasets of the store that no run refers to, but for these."""
    used = set()
    for run in runs_in(runs_dir):
        if run.record is None:
            raise UserError(f"{run.dir / FILE} cannot be read; until it can, or is gone, its dataset is not known")
        if run.dir not in but:
            used.add(pathlib.Path(run.record.arguments["dataset_dir"]).name)  # the directory may have been moved
    return sorted(path for path in (runs_dir / STORE).glob("*") if path.is_dir() and path.name not in used)


def write_page(runs_dir: pathlib.Path) -> None:
    """Writes `index.html`: the runs, the newest first, with links to their pages."""
    runs = [(run.row, (run.dir / summary.REPORT).exists()) for run in reversed(runs_in(runs_dir))]
    body = summary.TEMPLATES.get_template("runs.html").render(runs=runs)
    write_text(runs_dir / PAGE, render_page("Runs", body))


def _flat(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Values in values by their path with dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{name}.{key}") if isinstance(value, dict) else {f"{name}.{key}": value}
    return found
