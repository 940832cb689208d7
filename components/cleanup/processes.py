"""Processes of a run on this machine: the one that drives it, and replicas that outlived their launcher."""

import contextlib
import fcntl
import json
import os
import pathlib

import psutil

from trainer.base.errors import Parser, UserError
from trainer.base.files import is_remote

_TERMINATE_S = 5.0


def running(run_dir: str | os.PathLike[str]) -> bool:
    """Whether the process that drives a run is alive: it holds the lock of `run.json`. What is no run is refused."""
    try:
        with (pathlib.Path(run_dir) / "run.json").open(encoding="utf-8") as file:
            dict(json.load(file)["arguments"])
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{run_dir}: not the directory of a pipeline run (it has no run.json of ours)") from None
    return False


def require_ended(run_dir: str | os.PathLike[str]) -> None:
    """Refuses a run that is still going on, and what is no run."""
    if running(run_dir):
        raise UserError(f"{run_dir} is still running; stop it first")


def stop_replicas(job_dir: str) -> list[int]:
    """Ends training processes of this job that are still running here. Returns their process ids."""
    left = [process for process in psutil.process_iter() if _trains(process, job_dir)]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(left, timeout=_TERMINATE_S)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return [process.pid for process in left]


def _trains(process: psutil.Process, job_dir: str) -> bool:
    try:
        if _pid_namespace(process.pid) != _pid_namespace("self"):
            return False  # it is a container's, and its path is another place than ours
        command = process.cmdline()
        place = _job_dir(command) if "trainer.task" in command else None
        return place is not None and _where(place, process.cwd()) == _where(job_dir, os.getcwd())
    except (psutil.Error, UserError):
        return False  # it is gone, or another user's, or its command line is none


def _where(directory: str, cwd: str) -> str:
    return directory.rstrip("/") if is_remote(directory) else os.path.realpath(os.path.join(cwd, directory))


def _pid_namespace(pid: int | str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""  # a system without them, or another user's process


def _job_dir(command: list[str]) -> str | None:
    parser = Parser(add_help=False)
    parser.add_argument("--job-dir", "--job_dir")
    return parser.parse_known_args(command)[0].job_dir
