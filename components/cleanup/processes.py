"""Processes of a run on this machine: the one that drives it, and replicas that outlived their launcher."""

import contextlib
import fcntl
import os
import pathlib

import psutil

from common import bounded_json
from common.errors import UserError
from trainer.job.journal import STATUS

_TERMINATE_S = 5.0


def running(run_dir: str | os.PathLike[str]) -> bool:
    """Returns whether the process that drives a run is alive: it holds the lock of `run.json`. What is no run is refused."""
    try:
        with (pathlib.Path(run_dir) / "run.json").open("rb") as file:
            record = bounded_json.parse(bounded_json.read(file))
            if not {"id", "runner", "cluster", "arguments"} <= record.keys():
                raise ValueError
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except (OSError, ValueError, AttributeError):
        raise UserError(f"{run_dir}: not the directory of a pipeline run (it has no run.json of ours)") from None
    return False


def require_ended(run_dir: str | os.PathLike[str]) -> None:
    """Refuses a run that is still going on, and what is no run."""
    if running(run_dir):
        raise UserError(f"{run_dir} is still running; stop it first")


def stop_replicas(run_dir: str) -> list[int]:
    """Ends training processes of this run that are still running here. Returns their process ids."""
    inside = os.path.join(os.path.abspath(run_dir), "")
    left = [process for process in psutil.process_iter() if _status_file(process).startswith(inside)]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(left, timeout=_TERMINATE_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return [process.pid for process in left]


def _status_file(process: psutil.Process) -> str:
    """Where a replica tells how it is, below its run's directory; nothing of other processes."""
    try:
        return process.environ().get(STATUS, "")
    except (psutil.Error, OSError):
        return ""  # it is gone, or another user's
