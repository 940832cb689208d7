"""`launcher.jsonl`: what happened to a job on this machine, as the launcher saw it.

One JSON object a line, always with `event` and `time` (seconds since the epoch), and:

    start      pid, strategy, log_dir, replicas (each with replica, log, status), max_restarts, timeout_s, reports, notes
    up         replica, attempt, pid
    frozen     replica, why
    down       replica, attempt, ending, exit_code, seconds
    blame      replica (that died first), kind, ending, exit_code, step, log, tail
    restart    replicas, after (the kind), errors, preemptions, max_restarts, backoff_s
    spent      replica (an evaluator that is not started again), why
    dirty      replica (the cleanup after which failed), command, why
    stop       signal, again
    timeout    timeout_s
    end        exit_code, why, step, seconds; replica, ending, log and tail if one is to blame
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

FILE = "launcher.jsonl"
Event = Mapping[str, Any]
_WORDS = {
    "frozen": "{replica} is frozen ({why}); killing it",
    "down": "{replica} ended: {ending} after {seconds:.1f} s",
    "spent": "{replica} is not started again: {why}",
    "dirty": "{replica}: the cleanup after it failed: {why}; will try again at the end",
    "timeout": "the time limit (scheduling.timeout: {timeout_s} s) is reached: stopping the replicas",
}


class Record:
    """Appends events of one launcher."""

    def __init__(self, directory: str) -> None:
        self._file = open(os.path.join(directory, FILE), "ab+", buffering=0)  # noqa: SIM115
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, end - 1))
        self._torn = self._file.read(1) not in (b"", b"\n")  # By one that was killed.

    def add(self, event: str, **fields: Any) -> Event:
        """Appends an event and returns it."""
        line = {"event": event, "time": round(time.time(), 3), **fields}
        text = b"\n" * self._torn + json.dumps(line).encode() + b"\n"
        with contextlib.suppress(OSError):  # A full disk; the job may still end well.
            self._torn = self._file.write(text) < len(text)
        return line

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def last_run(directory: str) -> list[Event]:
    """Returns the events of the newest launcher, oldest first; none if there was never one."""
    events: list[Event] = []
    with contextlib.suppress(OSError), open(os.path.join(directory, FILE), "rb") as file:
        for line in file:
            with contextlib.suppress(ValueError):  # The last line of a launcher that was killed may be torn.
                event = json.loads(line)
                events = [event] if event["event"] == "start" else [*events, event]
    return events


def in_words(event: Event) -> list[str]:
    """Returns an event as lines for people; some need none."""
    match event:
        case {"event": "start", "replicas": replicas, "log_dir": log_dir, "notes": notes}:
            return [f"starting {len(replicas)} replicas; logs in {log_dir}", *notes]
        case {"event": "blame"}:
            return [_first_failure(event)]
        case {"event": "restart", "replicas": names, "backoff_s": wait_s}:
            again = f"starting {', '.join(names)} again{f' in {wait_s:.1f} s' if wait_s else ''}; restarts after"
            counts = "errors: {errors}, after preemptions: {preemptions} (of {max_restarts} each)".format(**event)
            return [f"{again} {counts}"]
        case {"event": "stop", "signal": name, "again": again}:
            return [f"{name}: {'killing' if again else 'stopping'} the replicas"]
        case {"event": "end", "replica": _, "why": why, "tail": tail}:
            return [f"{_first_failure(event, why)}; its last lines:", *(f"  {line}" for line in tail)]
        case {"event": "end", "why": why, "seconds": seconds, "step": step}:
            return [f"{why} after {seconds:.1f} s{'' if step is None else f', at step {step}'}"]
    words = _WORDS.get(event["event"])
    return [words.format(**event).rstrip()] if words else []


def _first_failure(event: Event, *consequence: str) -> str:
    what = "was preempted" if event["exit_code"] == 143 else "failed"
    first = f"{event['replica']} {what} first: {event['ending']}"
    return "; ".join([first, *consequence, f"log: {event['log']}"])
