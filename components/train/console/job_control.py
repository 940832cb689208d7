"""Looks at and ends a job of this machine: what `--status JOB_DIR` and `--stop JOB_DIR` do.

It knows only the job's directory: the launcher's lock tells who runs it, the launcher's journal what happened, the
replicas' status files how they are.
"""

import dataclasses
import json
import time
from typing import Any

from components.train.backends.launcher_identity import Fate
from components.train.console.view import table
from components.train.supervision import job_lock
from components.train.supervision.audience import Row
from components.train.supervision.health import Vitals
from components.train.supervision.launcher_log import Event, in_words, last_run
from components.train.supervision.reaper import LIMIT_S
from trainer.base.errors import UserError

_POLL_S = 0.1


def status(job_dir: str) -> dict[str, Any]:
    """The state of the newest launcher of a job directory (or, for a remote one, of its log directory).

    Its `state` is `starting`, `running`, `done`, `stopped`, `failed` or `killed` (the launcher ended without a word);
    `pid` and `host` are those of a launcher that runs, `exit_code` that of one that ended; times are in seconds since
    the epoch; `rows` has a `Row` for each replica, and `last` the newest word of the launcher for people.
    """
    holder, events = job_lock.holder(job_dir), last_run(job_dir)
    if not events:
        raise UserError(f"{job_dir}: no job ran here with components.train; name the --job-dir of one")
    start, last = events[0], events[-1]
    ended = last["event"] == "end"
    state = "running" if holder else "killed"
    if ended:
        failed = "replica" in last or last["exit_code"] == 2
        state = "done" if last["exit_code"] == 0 else "failed" if failed else "stopped"
    if holder and holder.since > start["time"]:
        state = "starting"  # Another that has not written anything yet.
    # Of the job's own budget; an evaluator has another.
    own = (e for e in reversed(events) if e["event"] == "restart" and e["replicas"] != ["evaluator/0"])
    restarts = next(own, {"errors": 0, "preemptions": 0})
    known = holder is not None and holder.fate is not Fate.UNKNOWN
    return {
        "state": state,
        "pid": holder.pid if holder else None,
        "host": holder.host if holder else None,
        "since": start["time"],
        "ended": last["time"] if ended else None,
        "exit_code": last["exit_code"] if ended else None,
        "restarts": {kind: restarts[kind] for kind in ("errors", "preemptions")},
        "rows": [_row(replica, events, running=bool(holder), known=known) for replica in start["replicas"]],
        "last": next((words for event in reversed(events) if (words := in_words(event))), []),
    }


def show(job_dir: str, form: str | None) -> int:
    """Prints the status, as JSON if `form` says so. Returns 0."""
    found = status(job_dir)
    if form == "json":
        print(json.dumps(found, default=dataclasses.asdict))
        return 0
    from rich.console import Console

    text = f"{found['state']}, process {found['pid']} of {found['host']}" if found["pid"] else found["state"]
    text += time.strftime(", started %Y-%m-%d %H:%M:%S", time.localtime(found["since"]))
    if found["ended"] is not None:
        text += f", took {found['ended'] - found['since']:.1f} s, exit code {found['exit_code']}"
    restarts = found["restarts"]
    print(f"{text}; restarts after errors: {restarts['errors']}, preemptions: {restarts['preemptions']}")
    Console(soft_wrap=True).print(table(found["rows"]))
    print("\n".join(found["last"]))
    return 0


def stop(job_dir: str) -> int:
    """Tells the launcher to stop, waits until nothing of the job is left, and says what happened. Returns 0."""
    holder = job_lock.holder(job_dir)
    if not holder:
        raise UserError(f"{job_dir}: nothing is running here; the last that did is {status(job_dir)['state']}")
    if holder.fate is Fate.UNKNOWN:
        raise UserError(
            f"{job_dir}: {holder.name} runs this job, and what that is cannot be known from here; run the same command there"
        )
    print(f"stopping {holder.name}; its replicas save first", flush=True)
    holder.terminate()
    gone_at = None
    while job_lock.holder(job_dir) == holder:
        if holder.fate is Fate.GONE:
            gone_at = gone_at or time.monotonic()
            if time.monotonic() > gone_at + LIMIT_S:
                raise UserError(f"{job_dir}: {holder.name} has ended, and its guard holds the job still; end that")
        time.sleep(_POLL_S)
    found = status(job_dir)
    steps = [row.step for row in found["rows"] if row.step is not None]
    at = f" at step {max(steps)}" if steps else ""
    print(f"{found['state']}{at}, exit code {found['exit_code']}")
    return 0


def _row(replica: dict[str, Any], events: list[Event], *, running: bool, known: bool) -> Row:
    name = replica["replica"]
    own = [event for event in events if event.get("replica") == name and event["event"] in ("up", "down")]
    up = next((event for event in reversed(own) if event["event"] == "up"), {"attempt": 0, "pid": 0})
    runs = running and bool(own) and own[-1]["event"] == "up"
    vitals = Vitals(replica["status"], up["pid"] if known else 0, 0.0)
    vitals.look(0.0)
    if runs:
        return vitals.row(name, vitals.phase or "running", up["attempt"])
    ending = f"ended: {own[-1]['ending']}" if own and own[-1]["event"] == "down" else "ended"
    return Row(replica=name, state=ending, restarts=up["attempt"], step=vitals.step)
