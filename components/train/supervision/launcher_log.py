"""`launcher.jsonl`: what happened to a job on this machine, as the launcher saw it.

One JSON object a line, always with `event` and `time` (seconds since the epoch), and:

    start      pid, strategy, log_dir, replicas (each with replica, log, status), max_restarts, timeout_s, reports, notes
    up         replica, attempt, pid
    frozen     replica, why
    down       replica, attempt, ending, exit_code, seconds
    blame      replica (that died first), kind, ending, exit_code, why (it is not started again), step, log, tail
    restart    replicas, after (the kind), errors, preemptions, max_restarts, backoff_s
    stop       why (a signal, or the time limit), again
    end        exit_code, why, step, seconds; replica, ending, log and tail if one is to blame
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from common import documents

FILE = "launcher.jsonl"
_MOST_LINE_BYTES = 1 << 20
Event = Mapping[str, Any]
_WORDS = {
    "frozen": "{replica} is frozen ({why}); killing it",
    "down": "{replica} ended: {ending} after {seconds:.1f} s",
}


class Record:
    """Appends events of one launcher."""

    def __init__(self, directory: str) -> None:
        self._file = open(os.path.join(directory, FILE), "ab+", buffering=0)  # noqa: SIM115
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, end - 1))
        if self._file.read(1) not in (b"", b"\n"):  # Torn by a launcher that was killed.
            self._file.write(b"\n")

    def add(self, event: str, **fields: Any) -> Event:
        """Appends an event and returns it."""
        line = {"event": event, "time": round(time.time(), 3), **fields}
        with contextlib.suppress(OSError):  # A full disk; the job may still end well.
            self._file.write(json.dumps(line).encode() + b"\n")
        return line

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def last_run(directory: str) -> list[Event]:
    """Returns the events of the newest launcher, oldest first; none if there was never one."""
    events: list[Event] = []
    with contextlib.suppress(OSError), open(os.path.join(directory, FILE), "rb") as file:
        while line := file.readline(_MOST_LINE_BYTES):
            with contextlib.suppress(ValueError):  # The last line of a launcher that was killed may be torn.
                event = documents.parse_json(line)
                if isinstance(event, dict) and "event" in event:
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
        case {"event": "stop", "why": why, "again": again}:
            return [f"{why}: {'killing' if again else 'stopping'} the replicas"]
        case {"event": "end", "replica": _, "tail": tail}:
            return [f"{_first_failure(event)}; its last lines:", *(f"  {line}" for line in tail)]
        case {"event": "end", "why": why, "seconds": seconds, "step": step}:
            return [f"{why} after {seconds:.1f} s{'' if step is None else f', at step {step}'}"]
    words = _WORDS.get(event["event"])
    return [words.format(**event).rstrip()] if words else []


def _first_failure(event: Event) -> str:
    what = "was preempted" if event["ending"] in ("exit code 143", "SIGTERM") else "failed"
    first = f"{event['replica']} {what} first: {event['ending']}"
    return "; ".join(filter(None, [first, event["why"], f"log: {event['log']}"]))
