"""`launcher.jsonl`: what happened to a job on this machine, as the launcher saw it.

One JSON object a line, always with `event` and `time` (seconds since the epoch). `events.yaml` has what else.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.base.strict_yaml import parse

FILE = "launcher.jsonl"
_EVENTS = parse((Path(__file__).parent / "events.yaml").read_bytes())
# By event, the names of what it always has.
NEEDED = {event: {name for name in has["fields"].split() if name[0] != "?"} for event, has in _EVENTS.items()}
Event = Mapping[str, Any]


class Record:
    """Appends events of one launcher."""

    def __init__(self, directory: str):
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
    """The events of the newest launcher, oldest first; none if there was never one."""
    events: list[Event] = []
    with contextlib.suppress(OSError), open(os.path.join(directory, FILE), "rb") as file:
        for event in filter(None, map(_read, file)):
            if event["event"] == "start":
                events = [event]
            elif events:
                events.append(event)
    return events


def _read(line: bytes) -> Event | None:
    """The event in a line; None if it is torn, as the last one of a launcher that was killed, or none of ours."""
    with contextlib.suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict) and "time" in event:
            needed = NEEDED.get(str(event.get("event")))
            return event if needed is not None and needed <= event.keys() else None
    return None


def in_words(event: Event) -> list[str]:
    """An event as lines for people; some need none."""
    match event:
        case {"event": "start", "replicas": replicas, "log_dir": log_dir, "notes": notes}:
            return [f"starting {len(replicas)} replicas; logs in {log_dir}", *notes]
        case {"event": "blame", "replica": name, "ending": ending, "exit_code": code, "log": log}:
            return [f"{name} {_what(code)} first: {ending}; log: {log}"]
        case {"event": "restart", "replicas": names, "backoff_s": wait_s, "errors": errors, "preemptions": preemptions}:
            again = f"starting {', '.join(names)} again{f' in {wait_s:.1f} s' if wait_s else ''}; restarts after errors"
            return [f"{again}: {errors}, after preemptions: {preemptions} (of {event['max_restarts']} each)"]
        case {"event": "stop", "signal": name, "again": again}:
            return [f"{name}: {'killing' if again else 'stopping'} the replicas"]
        case {"event": "end", "replica": name, "ending": ending, "log": log, "tail": tail}:
            first = f"{name} {_what(event['exit_code'])} first: {ending}; {event['why']}; log: {log}; its last lines:"
            return [first, *([f"  {line}" for line in tail] or ["  (none)"])]
        case {"event": "end", "why": why, "seconds": seconds, "step": step}:
            return [f"{why} after {seconds:.1f} s{'' if step is None else f', at step {step}'}"]
    words = _EVENTS[event["event"]].get("words")
    return [words.format(**event).rstrip()] if words else []


def _what(exit_code: int) -> str:
    return "was preempted" if exit_code == 143 else "failed"
