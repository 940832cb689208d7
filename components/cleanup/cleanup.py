"""Lists and deletes what a run of this machine left and nobody needs.

A run's directory keeps its summary, report, logs, journal and model. Three kinds of things can go,
and nothing that is, or lies behind, a symbolic link:
  * temporary files: the exit handler deletes these itself after a success;
  * checkpoints of a finished job: only a resume needs them;
  * intermediate results of the pipeline's steps; datasets are no run's own.
After a failure nothing goes by itself: it is the evidence, and what a resume starts from.
"""

import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterable

from common import documents
from common.errors import UserError
from trainer.job import done

JOURNAL = "cleanup.jsonl"
# Patterns below a run's directory, the file that makes them unneeded, and why.
_RULES = (
    (("tmp", "job/*.partial", "job/**/*.tmp"), "", "temporary"),
    (("job/checkpoints",), f"job/{done.FILE}", "checkpoints of a finished job"),
    (("artifacts/*/*",), "", "intermediate results"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that nobody needs.

    Attributes:
      kind: `files`, or on Vertex AI `job`, `version` or `endpoint`.
      name: Path, resource name, or a model and its version.
      why: Why it can go.
      num_bytes: Size of its files.
      run: Run that left it, on Vertex AI.
      files: Names in the bucket that go, in this order.
    """

    kind: str = "files"
    name: str
    why: str
    num_bytes: int = 0
    run: str = ""
    files: tuple[str, ...] = ()


def unneeded(run_dir: str, *, temporary_only: bool = False) -> list[Leftover]:
    """Returns all that can go from a run, or its temporary files only.

    Raises:
      UserError: Unless `temporary_only`, if the run is still going on, or this is no run's
        directory.
    """
    run = pathlib.Path(run_dir).resolve()
    if not temporary_only:
        require_ended(run)
    why_of = {
        path: why
        for patterns, condition, why in _RULES[: 1 if temporary_only else None]
        if (run / condition).exists()
        for pattern in patterns
        for path in sorted(run.glob(pattern))
    }
    return [
        Leftover(name=str(path), num_bytes=num_bytes(path), why=why)
        for path, why in why_of.items()
        if path.exists() and _is_inside(run, path) and why_of.keys().isdisjoint(path.parents)
    ]


def delete(run_dir: str, leftovers: Iterable[Leftover]) -> None:
    """Deletes files of a run, noting each in its `cleanup.jsonl`.

    Raises:
      UserError: If one is not inside the run's directory: nothing outside is touched, nor through a
        link.
    """
    run = pathlib.Path(run_dir).resolve()
    is_running(run)  # It refuses a directory that is no run's.
    with (run / JOURNAL).open("a", encoding="utf-8", buffering=1) as journal:
        for leftover in leftovers:
            path = pathlib.Path(leftover.name)
            if not _is_inside(run, path):
                raise UserError(
                    f"{path} is not inside the run {run}; nothing outside a run is deleted"
                )
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            line = {
                "time": round(time.time(), 3),
                "deleted": str(path),
                "bytes": leftover.num_bytes,
            }
            journal.write(json.dumps({**line, "why": leftover.why}) + "\n")


def num_bytes(path: pathlib.Path) -> int:
    """Returns the size of a file, or of all files below a directory; of a link its own."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def is_running(run_dir: str | os.PathLike[str]) -> bool:
    """Returns whether the process that drives a run is alive, by its lock of `run.json`.

    Raises:
      UserError: This is no directory of a run.
    """
    try:
        with (pathlib.Path(run_dir) / "run.json").open("rb") as file:
            if (
                not {"id", "runner", "cluster", "arguments"}
                <= documents.parse_json(documents.read(file)).keys()
            ):
                raise ValueError
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ValueError, AttributeError):
        raise UserError(
            f"{run_dir}: not the directory of a pipeline run (it has no run.json of ours)"
        ) from None
    return False


def require_ended(run_dir: str | os.PathLike[str]) -> None:
    """Refuses a run that is still going on, and what is no run."""
    if is_running(run_dir):
        raise UserError(f"{run_dir} is still running; stop it first")


def _is_inside(run: pathlib.Path, path: pathlib.Path) -> bool:
    """Returns whether a path leads into the run, and by no link or `..`."""
    return run in path.parents and path.resolve() == path
