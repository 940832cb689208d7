"""`launcher.jsonl`: what happened to a job on this machine, as the launcher saw it.

One JSON object a line, always with `event` and `time` (seconds since the epoch). `FIELDS` has what else.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

FILE = "launcher.jsonl"
# What each event has. Of those that begin with `?`, `end` has some only when a replica is to blame.
FIELDS = {
    "start": "pid strategy log_dir replicas max_restarts timeout_s reports notes",  # replicas: `replica`, `log`, `status`
    "up": "replica attempt pid",
    "frozen": "replica why",
    "down": "replica attempt ending exit_code seconds",
    "blame": "replica kind ending exit_code step log tail",  # who died first
    "restart": "replicas after errors preemptions max_restarts backoff_s",  # after: the kind
    "spent": "replica why",  # an evaluator that is not started again
    "dirty": "replica command why",  # a cleanup that failed
    "unlogged": "replica log why",  # a log file that misses something, told once
    "stop": "signal again",
    "timeout": "timeout_s",
    "end": "exit_code why ?replica ?ending ?log ?tail ?step ?seconds",
}
_NEEDED = {event: {name for name in names.split() if name[0] != "?"} for event, names in FIELDS.items()}
# Those whose words need nothing but their fields.
_WORDS = {
    "frozen": "{replica} is frozen ({why}); killing it",
    "down": "{replica} ended: {ending} after {seconds:.1f} s",
    "spent": "{replica} is not started again: {why}",
    "dirty": "{replica}: the cleanup after it failed: {why}; will try again at the end",
    "unlogged": "cannot write {log}: {why}; the job goes on, and log files miss what is written meanwhile",
    "timeout": "the time limit (scheduling.timeout: {timeout_s} s) is reached: stopping the replicas",
}
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
            needed = _NEEDED.get(str(event.get("event")))
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
    return [_WORDS[event["event"]].format(**event)] if event["event"] in _WORDS else []


def _what(exit_code: int) -> str:
    return "was preempted" if exit_code == 143 else "failed"
