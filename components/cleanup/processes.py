"""Processes of a run on this machine: the one that drives it, and replicas that outlived their launcher."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib

import psutil

from trainer.errors import UserError

_TERMINATE_S = 5.0
_CLOCK_S = 5.0  # the time at which a process started is computed from the wall clock, which may be set


def running(run_dir: str | os.PathLike[str]) -> bool:
    """Whether the process that drives a run is alive.

    Raises:
      UserError: If this is no run's directory.
    """
    try:
        record = json.loads((pathlib.Path(run_dir) / "run.json").read_text(encoding="utf-8"))
        pid, create_time = int(record["owner"]["pid"]), float(record["owner"]["create_time"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{run_dir}: not the directory of a pipeline run (it has no run.json of ours)") from None
    try:
        return abs(psutil.Process(pid).create_time() - create_time) < _CLOCK_S
    except psutil.NoSuchProcess:
        return False


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
        command = process.cmdline()
        place = _job_dir(command) if "trainer.task" in command else None
        return place is not None and _where(place, process.cwd()) == _where(job_dir, os.getcwd())
    except psutil.Error:
        return False  # it is gone, or another user's


def _where(directory: str, cwd: str) -> str:
    return directory.rstrip("/") if "://" in directory else os.path.realpath(os.path.join(cwd, directory))


def _job_dir(command: list[str]) -> str | None:
    found = None
    for argument, following in zip(command, [*command[1:], None], strict=True):
        flag, equals, value = argument.partition("=")
        if flag in ("--job-dir", "--job_dir"):
            found = value if equals else following
    return found
