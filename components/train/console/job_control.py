"""Shows and ends a job of this machine: what `--status JOB_DIR` and `--stop JOB_DIR` do.

It knows only the job's directory: the launcher's lock tells who runs it, the launcher's journal what happened, the
replicas' status files how they are.
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence

from common.errors import UserError, reading
from components.train.backends.launcher_identity import Fate, Launcher
from components.train.supervision import job_lock, launcher_log, supervisor
from components.train.supervision.health import Vitals
from components.train.supervision.launcher_log import Event, in_words, last_run
from components.train.supervision.output import Row, table

_POLL_S = 0.1


def show(job_dir: str) -> int:
    """Prints the state of the newest launcher of a job directory (or, of a job in a bucket, of its log directory).

    That is `starting`, `running`, `done`, `stopped`, `failed` or `killed` (the launcher ended without a word). Returns 0.
    """
    with _reading(job_dir):
        return _show(job_dir)


def _show(job_dir: str) -> int:
    from rich.console import Console

    holder, events = job_lock.holder(job_dir), _events(job_dir)
    start, end = events[0], events[-1]
    text = _state(holder, events)
    text += f", process {holder.pid} of {holder.host}" if holder else ""
    text += time.strftime(", started %Y-%m-%d %H:%M:%S", time.localtime(start["time"]))
    if end["event"] == "end":
        text += f", took {end['time'] - start['time']:.1f} s, exit code {end['exit_code']}"
    print(text)
    rows = [_row(replica, is_running=bool(holder)) for replica in start["replicas"]]
    Console(soft_wrap=True).print(table(rows))
    print(_last_words(events))
    return 0


def stop(job_dir: str, grace_period_s: float | None = None) -> int:
    """Tells the launcher to stop, waits until nothing of the job is left, and says what happened.

    Args:
      job_dir: Directory with the launcher's lock.
      grace_period_s: What the replicas have to save, in place of the launcher's own grace period.

    Returns:
      0 if the job is done or all is saved, 137 if a replica had to be killed, else the job's exit code.
    """
    holder = job_lock.holder(job_dir)
    if not holder:
        with _reading(job_dir):
            state = _state(None, _events(job_dir))
        raise UserError(f"{job_dir}: nothing is running here; the last that did is {state}")
    if holder.fate is Fate.UNKNOWN:
        raise UserError(
            f"{job_dir}: {holder.name} runs this job, and what that is cannot be known from here; run the same command there"
        )
    print(f"stopping {holder.name}; its replicas save first", flush=True)
    if grace_period_s:
        job_lock.request_grace_period(job_dir, grace_period_s)
    holder.terminate()
    while job_lock.holder(job_dir) == holder:  # What is left of it when it is gone has limits of its own.
        time.sleep(_POLL_S)
    with _reading(job_dir):
        return _report_end(holder, _events(job_dir))


def _report_end(holder: Launcher, events: Sequence[Event]) -> int:
    end = events[-1]
    if end["event"] != "end":
        print(f"{holder.name} was killed, and its replicas with it")
        return supervisor.KILLED
    print(_last_words([end]))
    has_saved = _state(None, [end]) == "stopped"
    return 0 if has_saved else end["exit_code"]


def _reading(job_dir: str) -> contextlib.AbstractContextManager[None]:
    return reading(os.path.join(job_dir, launcher_log.FILE))


def _events(job_dir: str) -> list[Event]:
    if not (events := last_run(job_dir)):
        raise UserError(f"{job_dir}: no job ran here with components.train; name the --job-dir of one")
    return events


def _state(holder: Launcher | None, events: Sequence[Event]) -> str:
    end = events[-1]
    if holder:
        # Another than that of the events, if it has not written anything yet.
        return "starting" if holder.started > events[0]["time"] else "running"
    if end["event"] != "end":
        return "killed"
    has_failed = "replica" in end or end["exit_code"] in (2, supervisor.KILLED)
    return "done" if end["exit_code"] == 0 else "failed" if has_failed else "stopped"


def _last_words(events: Sequence[Event]) -> str:
    return "\n".join(next(filter(None, map(in_words, reversed(events))), []))


def _row(replica: Mapping[str, str], *, is_running: bool) -> Row:
    vitals = Vitals(replica["status"])
    vitals.look(0.0)
    return vitals.row(replica["replica"], vitals.phase or "started" if is_running else "ended")
