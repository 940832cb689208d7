"""The runs of a directory, as their files tell: what each was to do, and what became of it.

for run in runs_in(pathlib.Path("runs")):
    print(run.id, run.status)
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from components.cleanup.processes import running
from pipelines import summary
from pipelines.record import FILE, RunRecord
from trainer.base.errors import UserError, unknown

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
    metric: str = ""  # What it was judged by, if it was.

    @property
    def row(self) -> dict[str, str]:
        """What there is to say of it in a line; texts, empty where nothing is known."""
        model, record = self.summary.get("model", {}), self.record
        value = self.summary.get("metrics", {}).get(self.metric)
        return {
            "run": self.dir.name,
            "status": self.status,
            "dataset": record.dataset if record else "",
            "cluster": record.cluster if record else "",
            "metric": "" if value is None else f"{self.metric} {value:.4f}",
            "verdict": model.get("verdict") or "",
            "version": f"{model['name']} {model['version']}" if model.get("version") else "",
            "seconds": f"{self.summary['seconds']:.1f}" if self.summary else "",
        }


def runs_in(runs_dir: pathlib.Path) -> list[Run]:
    """The runs there, the oldest first; what is something else is passed over."""
    if not runs_dir.is_dir():
        raise UserError(f"--runs-dir {runs_dir}: no such directory")
    return [read(path.parent) for path in sorted(runs_dir.glob(f"[!.]*/{FILE}"))]


def find(name: str, runs_dir: pathlib.Path) -> Run:
    """The run of that id in `runs_dir`, or at that path.

    Raises:
      UserError: If there is none, or it cannot be read.
    """
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
    told, evaluation = _json(run_dir / summary.FILE), _json(run_dir / summary.EVALUATION)
    status = RUNNING if runs else told.get("status", KILLED)
    return Run(dir=run_dir, status=status, record=record, summary=told, metric=evaluation.get("metric", ""))


def _json(path: pathlib.Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}
