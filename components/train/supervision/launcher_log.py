"""`launcher.jsonl`: what happened to a job on this machine, as the launcher saw it.

One JSON object a line, always with `event`, `time` (seconds since the epoch) and `message` (for people; empty of some), and:

    start      pid, replicas (each with replica, log, status)
    up         replica, attempt, pid
    frozen     replica, why
    down       replica, attempt, ending, exit_code, seconds
    blame      replica (that died first), kind, ending, exit_code, why (it is not started again), step, log, tail
    restart    replicas, after (the kind), errors, preemptions
    stop       why (a signal, or the time limit)
    end        exit_code, why, step, seconds; replica, ending, log and tail if one is to blame
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common import documents

FILE = "launcher.jsonl"
_MOST_LINE_BYTES = 1 << 20
Event = Mapping[str, Any]


@contextlib.contextmanager
def recording(directory: str) -> Iterator[Callable[..., None]]:
    """Yields a function that appends an event of one launcher, from its name, its message, and its fields by name."""
    with open(os.path.join(directory, FILE), "ab", buffering=0) as file:
        if file.tell():
            file.write(b"\n")  # The last line of a launcher that was killed may be torn.

        def record(event: str, message: str, **fields: Any) -> None:
            line = {"event": event, "time": round(time.time(), 3), "message": message, **fields}
            with contextlib.suppress(OSError):  # A full disk; the job may still end well.
                file.write(json.dumps(line).encode() + b"\n")

        yield record


def last_run(directory: str) -> list[Event]:
    """Returns the events of the newest launcher, oldest first; none if there was never one."""
    events: list[Event] = []
    with contextlib.suppress(OSError), open(os.path.join(directory, FILE), "rb") as file:
        while line := file.readline(_MOST_LINE_BYTES):
            with contextlib.suppress(ValueError):  # Empty or torn.
                event = documents.parse_json(line)
                if isinstance(event, dict) and "event" in event:
                    events = [event] if event["event"] == "start" else [*events, event]
    return events


def failure_message(event: Event) -> str:
    """Returns who failed first, how, and why it is not started again, from the fields of `blame` or `end`."""
    what = "was preempted" if event["ending"] in ("exit code 143", "SIGTERM") else "failed"
    first = f"{event['replica']} {what} first: {event['ending']}"
    return "; ".join(filter(None, [first, event["why"], f"log: {event['log']}"]))


def end_message(event: Event) -> str:
    """Returns how a job ended, from the fields of `end`, with the last lines of the replica that is to blame."""
    if "replica" in event:
        return "\n  ".join([f"{failure_message(event)}; its last lines:", *event["tail"]])
    step = "" if event["step"] is None else f", at step {event['step']}"
    return f"{event['why']} after {event['seconds']:.1f} s{step}"
