"""`launcher.jsonl`: what happened to a job on this machine, as the launcher saw it.

One JSON object a line, always with `event` and `time` (seconds since the epoch):

    start    pid, strategy, log_dir, replicas (each `replica`, `log`, `status`), max_restarts, timeout_s, reports, notes
    up       replica, attempt, pid
    frozen   replica, why
    down     replica, attempt, ending, exit_code, seconds
    blame    replica, kind, ending, exit_code, step, log, tail: who died first
    restart  replicas, after (kind), errors, preemptions, max_restarts, backoff_s
    spent    replica, why: an evaluator that is not started again
    dirty    replica, command, why: a cleanup that failed
    unlogged replica, log, why: a log file that misses something, told once
    stop     signal, again
    timeout  timeout_s
    end      exit_code, why, replica, ending, log, tail, step, seconds
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from trainer.base.errors import UserError

FILE = "launcher.jsonl"
Event = Mapping[str, Any]


class Record:
    """Appends events of one launcher."""

    def __init__(self, directory: str):
        """Opens the file.

        Raises:
          UserError: If it cannot be written.
        """
        path = os.path.join(directory, FILE)
        try:
            self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None

    def add(self, event: str, **fields: Any) -> Event:
        """Appends an event and returns it."""
        line = {"event": event, "time": round(time.time(), 3), **fields}
        with contextlib.suppress(OSError):  # A full disk; the job may still end well.
            self._file.write(json.dumps(line) + "\n")
        return line

    def close(self) -> None:
        """Closes the file."""
        with contextlib.suppress(OSError):
            self._file.close()


def last_run(directory: str) -> list[Event]:
    """The events of the newest launcher, oldest first; none if there was never one."""
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    events: list[Event] = []
    for line in lines:
        with contextlib.suppress(ValueError):  # The last line of one that was killed.
            event = json.loads(line)
            events = [event] if event["event"] == "start" else [*events, event]
    return events


def in_words(event: Event) -> list[str]:
    """An event as lines for people; some need none."""
    match event:
        case {"event": "start", "replicas": replicas, "log_dir": log_dir, "notes": notes}:
            return [f"starting {len(replicas)} replicas; logs in {log_dir}", *notes]
        case {"event": "frozen", "replica": name, "why": why}:
            return [f"{name} is frozen ({why}); killing it"]
        case {"event": "down", "replica": name, "ending": ending, "seconds": seconds}:
            return [f"{name} ended: {ending} after {seconds:.1f} s"]
        case {"event": "blame", "replica": name, "ending": ending, "exit_code": code, "log": log}:
            return [f"{name} {_what(code)} first: {ending}; log: {log}"]
        case {"event": "restart"}:
            return [_restart(event)]
        case {"event": "spent", "replica": name, "why": why}:
            return [f"{name} is not started again: {why}"]
        case {"event": "dirty", "replica": name, "why": why}:
            return [f"{name}: the cleanup after it failed: {why}; will try again at the end"]
        case {"event": "unlogged", "log": log, "why": why}:
            return [f"cannot write {log}: {why}; the job goes on, and log files miss what is written meanwhile"]
        case {"event": "stop", "signal": name, "again": again}:
            return [f"{name}: {'killing' if again else 'stopping'} the replicas"]
        case {"event": "timeout", "timeout_s": limit_s}:
            return [f"the time limit (scheduling.timeout: {limit_s} s) is reached: stopping the replicas"]
        case {"event": "end", "replica": name, "ending": ending, "exit_code": code, "why": why, "log": log}:
            last = [f"  {line}" for line in event["tail"]] or ["  (none)"]
            return [f"{name} {_what(code)} first: {ending}; {why}; log: {log}; its last lines:", *last]
        case {"event": "end", "why": why, "seconds": seconds, "step": step}:
            return [f"{why} after {seconds:.1f} s{'' if step is None else f', at step {step}'}"]
    return []


def _what(exit_code: int) -> str:
    return "was preempted" if exit_code == 143 else "failed"


def _restart(event: Event) -> str:
    who = ", ".join(event["replicas"])
    wait = f" in {event['backoff_s']:.1f} s" if event["backoff_s"] else ""
    return (
        f"starting {who} again{wait}; restarts after errors: {event['errors']}, after preemptions: "
        f"{event['preemptions']} (of {event['max_restarts']} each)"
    )
