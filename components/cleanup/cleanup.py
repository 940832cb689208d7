"""Deletes what a run made and nobody needs.

A run's directory keeps its summary, report, logs, journal and model. Three kinds of things can go, and nothing that
is, or lies behind, a symbolic link:
  * temporary files: the exit handler deletes these itself after a success;
  * checkpoints of a finished job: only a resume needs them;
  * intermediate results of the pipeline's steps; datasets are no run's own.
After a failure nothing goes by itself: it is the evidence, and what a resume starts from.
"""

import dataclasses
import json
import pathlib
import shutil
import time
from collections.abc import Iterable

from common.errors import UserError
from components.cleanup.processes import require_ended, running
from trainer.job import done

JOURNAL = "cleanup.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """Something that can go: where it is, its size, and why it is not needed."""

    path: pathlib.Path
    bytes: int
    why: str


def unneeded(run_dir: str, *, temporary_only: bool = False) -> list[Candidate]:
    """All that can go: temporary files, checkpoints of the finished job, intermediate results; or the first alone.

    More than temporary files is refused where this is no run's directory, or the run is still going on.
    """
    run = pathlib.Path(run_dir).resolve()
    if not temporary_only:
        require_ended(run)
    reasons = dict.fromkeys([run / "tmp", *run.glob("job/*.partial"), *run.glob("job/**/*.tmp")], "temporary")
    if not temporary_only:
        if (run / "job" / done.FILE).is_file():
            reasons[run / "job" / "checkpoints"] = "checkpoints of a finished job"
        reasons |= dict.fromkeys(sorted(run.glob("artifacts/*/*")), "intermediate results")
    return [  # What exists inside the run, and is no part of another.
        Candidate(path=path, bytes=num_bytes(path), why=why)
        for path, why in reasons.items()
        if path.exists() and _inside(run, path) and reasons.keys().isdisjoint(path.parents)
    ]


def delete(run_dir: str, candidates: Iterable[Candidate]) -> int:
    """Deletes them, noting each in the run's `cleanup.jsonl`. Returns the bytes freed.

    One that is not inside the run's directory is refused: nothing outside is ever touched, nor through a link.
    """
    run = pathlib.Path(run_dir).resolve()
    freed = 0
    running(run)  # refuses what is no run
    with (run / JOURNAL).open("a", encoding="utf-8", buffering=1) as journal:
        for candidate in candidates:
            if not _inside(run, candidate.path):
                raise UserError(f"{candidate.path} is not inside the run {run}; nothing outside a run is deleted")
            if candidate.path.is_dir():
                shutil.rmtree(candidate.path)
            else:
                candidate.path.unlink(missing_ok=True)
            line = {"time": round(time.time(), 3), "deleted": str(candidate.path), "bytes": candidate.bytes}
            journal.write(json.dumps({**line, "why": candidate.why}) + "\n")
            freed += candidate.bytes
    return freed


def _inside(run: pathlib.Path, path: pathlib.Path) -> bool:
    """Returns whether a path leads into the run, and by no link or `..`."""
    return run in path.parents and path.resolve() == path


def num_bytes(path: pathlib.Path) -> int:
    """Returns the size of a file, or of all files below a directory; of a link its own."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())
