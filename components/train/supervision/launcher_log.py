"""The launcher's log of a job's events, `launcher.jsonl`.

It has one JSON object a line. Each has `event`, `time` (seconds since the epoch) and `message` (for
people; may be empty). The further fields depend on the event:

    start      pid, replicas (each with replica, log, status)
    up         replica, attempt, pid
    frozen     replica, why
    down       replica, attempt, ending, exit_code, seconds
    blame      replica (the one that died first), kind, ending, exit_code, why (it is not started
               again; empty if it is), step, log, tail
    restart    replicas, after (the kind of the end), errors, preemptions
    stop       why (a signal, or the time limit)
    end        exit_code, why, step, seconds; also replica, ending, log and tail if a replica is to
               blame; only message and exit_code if the launcher itself has failed
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
    """Opens `launcher.jsonl` of a directory and yields a function that appends events to it.

    The function takes the event's name, its message, and further fields as keyword arguments. It
    ignores errors of writing, since the job may still end well when the disk is full.

    Raises:
      OSError: If the file cannot be opened.
    """
    with open(os.path.join(directory, FILE), "ab", buffering=0) as file:
        if file.tell():
            file.write(b"\n")  # The last line may be incomplete if its launcher was killed.

        def record(event: str, message: str, **fields: Any) -> None:
            line = {"event": event, "time": round(time.time(), 3), "message": message, **fields}
            with contextlib.suppress(OSError):
                file.write(json.dumps(line).encode() + b"\n")

        yield record


def last_run(directory: str) -> list[Event]:
    """Returns the newest `start` in a directory's `launcher.jsonl` and the events after it.

    They are in the order of the file, the oldest first.

    Without a `start` these are all events. Lines that are not events are skipped. The list is empty
    if there is no log that can be read.
    """
    events: list[Event] = []
    with contextlib.suppress(OSError), open(os.path.join(directory, FILE), "rb") as file:
        while line := file.readline(_MOST_LINE_BYTES):
            with contextlib.suppress(ValueError):  # The line is empty or incomplete.
                event = documents.parse_json(line)
                if isinstance(event, dict) and "event" in event:
                    events = [event] if event["event"] == "start" else [*events, event]
    return events


def failure_message(event: Event) -> str:
    """Returns a line with the replica that failed first, its end, why it is given up, and its log.

    An end by SIGTERM or with exit code 143 is called a preemption.

    Args:
      event: Fields of an event `blame`, or of an `end` with a replica: `replica`, `ending`, `log`,
        and `why`, which is empty if the replica starts again.
    """
    what = "was preempted" if event["ending"] in ("exit code 143", "SIGTERM") else "failed"
    first = f"{event['replica']} {what} first: {event['ending']}"
    return "; ".join(filter(None, [first, event["why"], f"log: {event['log']}"]))


def end_message(event: Event) -> str:
    """Returns a text about the end of a job: one line, or several if a replica is to blame.

    Several lines are that of `failure_message` and the last lines of the replica's output.

    Args:
      event: Fields of an event `end`: `why`, `seconds` and `step` (which may be None), or those of
        a replica that is to blame. An `end` of a launcher that failed itself lacks them, and must
        not be given.
    """
    if "replica" in event:
        return "\n  ".join([f"{failure_message(event)}; its last lines:", *event["tail"]])
    step = "" if event["step"] is None else f", at step {event['step']}"
    return f"{event['why']} after {event['seconds']:.1f} s{step}"
