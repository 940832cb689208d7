"""Lists and deletes what a run on this machine left and nobody needs any more.

A run's directory keeps its summary, report, logs, journal and model. These can be deleted:
  * temporary files; after a success the pipeline's exit handler deletes them itself;
  * checkpoints of a finished job, which only a resume needs;
  * intermediate results of the pipeline's steps. Datasets stay, since runs share them.
A symbolic link, and what lies behind one, is never deleted. After a failure nothing is deleted
without a command, because it shows what went wrong, and a resume starts from it.
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
# Patterns of paths below a run's directory, the file that has to exist before they can go (empty:
# the directory itself), and the reason to show.
_RULES = (
    (("tmp", "job/*.partial", "job/**/*.tmp"), "", "temporary"),
    (("job/checkpoints",), f"job/{done.FILE}", "checkpoints of a finished job"),
    (("artifacts/*/*",), "", "intermediate results"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leftover:
    """Something that nobody needs any more.

    Attributes:
      kind: `files`; on Vertex AI also `job`, `version` or `endpoint`.
      name: On this machine the absolute path. On Vertex AI the `gs://` address of the folder, or
        the full resource name; of a version `MODEL NUMBER`.
      why: Reason why it can be deleted.
      num_bytes: Size of its files; 0 if it has none.
      run: Run that left it; empty if it is not known, and on this machine.
      files: Names of its files within the bucket; empty on this machine.
    """

    kind: str = "files"
    name: str
    why: str
    num_bytes: int = 0
    run: str = ""
    files: tuple[str, ...] = ()


def unneeded(run_dir: str, *, temporary_only: bool = False) -> list[Leftover]:
    """Returns what can be deleted of a run.

    That is temporary files, checkpoints of a finished job, and intermediate results of the steps.
    Symbolic links and what lies behind them are left out, and so is what lies in a folder that is
    returned itself.

    Args:
      run_dir: Directory of the run.
      temporary_only: Whether to return only temporary files, also of a run that has not ended.

    Raises:
      UserError: Unless `temporary_only`, if the run has not ended, or if this is no directory of a
        run.
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
    """Deletes files and folders of a run, and notes each in `cleanup.jsonl` of its directory.

    One that is gone already is noted as well. A run that has not ended is not refused.

    Raises:
      UserError: If this is no directory of a run, or if a file lies outside of it, or behind a
        symbolic link. Leftovers before that file are deleted by then.
      OSError: If a file cannot be deleted, likewise, or `cleanup.jsonl` cannot be written.
    """
    run = pathlib.Path(run_dir).resolve()
    is_running(run)  # Raises an error if this is no directory of a run.
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
    """Returns the size in bytes of a file, or of all files below a directory.

    A symbolic link in the directory counts with its own size, or not at all if it leads to another
    directory.

    Raises:
      OSError: If there is nothing at the path.
    """
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def is_running(run_dir: str | os.PathLike[str]) -> bool:
    """Returns whether the process that drives a run is alive. It holds a lock on `run.json`.

    Args:
      run_dir: Directory of the run.

    Raises:
      UserError: If this is no directory of a run.
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
    """Checks that a run has ended.

    Raises:
      UserError: If it is still running, or if this is no directory of a run.
    """
    if is_running(run_dir):
        raise UserError(f"{run_dir} is still running; stop it first")


def _is_inside(run: pathlib.Path, path: pathlib.Path) -> bool:
    """Returns whether a path lies in the directory of a run, without any link or `..` in it."""
    return run in path.parents and path.resolve() == path
