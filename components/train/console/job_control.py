"""Shows and ends a job of this machine: what `--status JOB_DIR` and `--stop JOB_DIR` do.

It knows only the job's directory: the launcher's lock tells who runs it, the launcher's journal what happened, the
replicas' status files how they are.
"""

import dataclasses
import time
from typing import Any

from components.train.backends.launcher_identity import Fate, Launcher
from components.train.supervision import job_lock
from components.train.supervision.health import Vitals
from components.train.supervision.launcher_log import Event, in_words, last_run
from components.train.supervision.output import Row, table
from trainer.base.errors import UserError

_POLL_S = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """State of the newest launcher of a job directory (or, of a job in a bucket, of its log directory)."""

    state: str  # `starting`, `running`, `done`, `stopped`, `failed` or `killed` (the launcher ended without a word).
    holder: Launcher | None  # The launcher that runs.
    start: Event
    end: Event | None
    restarts: dict[str, int]  # After errors, and after preemptions.
    rows: list[Row]  # One for each replica.
    words: list[str]  # The newest that the launcher said.


def status(job_dir: str) -> Status:
    """Returns the state of a job."""
    holder, events = job_lock.holder(job_dir), last_run(job_dir)
    if not events:
        raise UserError(f"{job_dir}: no job ran here with components.train; name the --job-dir of one")
    start = events[0]
    end = events[-1] if events[-1]["event"] == "end" else None
    if holder:
        # Another than that of the events, if it has not written anything yet.
        state = "starting" if holder.since > start["time"] else "running"
    elif end:
        has_failed = "replica" in end or end["exit_code"] == 2
        state = "done" if end["exit_code"] == 0 else "failed" if has_failed else "stopped"
    else:
        state = "killed"
    # Of the job's own budget; an evaluator has another.
    restarts = [e for e in events if e["event"] == "restart" and e["replicas"] != ["evaluator/0"]]
    return Status(
        state=state,
        holder=holder,
        start=start,
        end=end,
        restarts={kind: restarts[-1][kind] if restarts else 0 for kind in ("errors", "preemptions")},
        rows=[_row(replica, events, is_running=bool(holder)) for replica in start["replicas"]],
        words=next((words for event in reversed(events) if (words := in_words(event))), []),
    )


def show(job_dir: str) -> int:
    """Prints the status. Returns 0."""
    from rich.console import Console

    job = status(job_dir)
    text = f"{job.state}, process {job.holder.pid} of {job.holder.host}" if job.holder else job.state
    text += time.strftime(", started %Y-%m-%d %H:%M:%S", time.localtime(job.start["time"]))
    if job.end:
        text += f", took {job.end['time'] - job.start['time']:.1f} s, exit code {job.end['exit_code']}"
    print(f"{text}; restarts after errors: {job.restarts['errors']}, preemptions: {job.restarts['preemptions']}")
    Console(soft_wrap=True).print(table(job.rows))
    print("\n".join(job.words))
    return 0


def stop(job_dir: str) -> int:
    """Tells the launcher to stop, waits until nothing of the job is left, and says what happened. Returns 0."""
    holder = job_lock.holder(job_dir)
    if not holder:
        raise UserError(f"{job_dir}: nothing is running here; the last that did is {status(job_dir).state}")
    if holder.fate is Fate.UNKNOWN:
        raise UserError(
            f"{job_dir}: {holder.name} runs this job, and what that is cannot be known from here; run the same command there"
        )
    print(f"stopping {holder.name}; its replicas save first", flush=True)
    holder.terminate()
    while job_lock.holder(job_dir) == holder:  # What is left of it when it is gone has limits of its own.
        time.sleep(_POLL_S)
    print("\n".join(status(job_dir).words))
    return 0


def _row(replica: dict[str, Any], events: list[Event], *, is_running: bool) -> Row:
    name = replica["replica"]
    last = [event for event in events if event.get("replica") == name and event["event"] in ("up", "down")][-1:]
    vitals = Vitals(replica["status"])
    vitals.look(0.0)
    if is_running and last and last[0]["event"] == "up":
        return vitals.row(name, vitals.phase or "started")
    ending = f"ended: {last[0]['ending']}" if last and last[0]["event"] == "down" else "ended"
    return dataclasses.replace(vitals.row(name, ending), examples_per_s=None)
