"""The steps of a run as they go by, read from the output of kfp.local."""

import contextlib
import dataclasses
import pathlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

RUNNING, SUCCEEDED, CACHED, FAILED = "running", "succeeded", "cached", "failed"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
NAMES = "Steps: "  # before those of the run, in an order in which they can run
_LOGGED = r"\d\d:\d\d:\d\d\.\d{3} - [A-Z]+ - "
EVENTS = {
    RUNNING: re.compile(_LOGGED + r"Executing task '([\w-]+)'"),
    SUCCEEDED: re.compile(_LOGGED + r"Task '([\w-]+)' finished with status SUCCESS"),
    FAILED: re.compile(_LOGGED + r"Task '([\w-]+)' finished with status FAILURE"),
    CACHED: re.compile(_LOGGED + r"Task ([\w-]+) cache hit"),
}


@dataclasses.dataclass(kw_only=True)
class Step:
    """One step: what became of it and how long it took."""

    name: str
    started: float  # In seconds of the monotonic clock, as `ended`.
    status: str = RUNNING
    ended: float | None = None

    @property
    def seconds(self) -> float:
        """So far, or all of them."""
        return (self.ended or time.monotonic()) - self.started

    def become(self, status: str) -> None:
        """Begins or ends."""
        self.status, self.ended = status, None if status == RUNNING else time.monotonic()


class Steps:
    """Follows a run: keeps its log, each step's part of it, and what became of each step."""

    def __init__(self, log_dir: pathlib.Path) -> None:
        self.names: Sequence[str] = ()
        self.seen: dict[str, Step] = {}
        self._log_dir = log_dir

    @property
    def current(self) -> Step | None:
        """The step that is running; kfp.local runs one at a time."""
        return next((s for s in self.seen.values() if s.status == RUNNING), None)

    def log(self, step: Step | None) -> pathlib.Path:
        """Where all that a step says is kept, or the whole run."""
        return self._log_dir / f"{step.name if step else 'pipeline'}.log"

    @property
    def is_training(self) -> bool:
        """Whether the step that is running is `train`."""
        return self.current is not None and self.current.name == "train"

    @property
    def failed(self) -> Step | None:
        """The first step that failed, if one did."""
        return next((s for s in self.seen.values() if s.status == FAILED), None)

    def follow(self, lines: Iterable[bytes]) -> Iterator[Step]:
        """Reads to the end; yields a step whenever it starts or ends."""
        with contextlib.ExitStack() as files:
            whole = files.enter_context(self.log(None).open("a", encoding="utf-8"))
            part: IO[str] | None = None
            for raw in lines:
                line = ANSI.sub("", raw.decode("utf-8", errors="replace"))
                whole.write(line)
                whole.flush()
                if step := self._event(line):
                    part = None
                    if step.status == RUNNING:
                        part = files.enter_context(self.log(step).open("a", encoding="utf-8"))
                    yield step
                elif part:
                    part.write(line.removeprefix("    "))
                    part.flush()
        if step := self.current:  # its end was never told: the run was stopped
            step.become(FAILED)

    def _event(self, line: str) -> Step | None:
        if line.startswith(NAMES):
            self.names = line.removeprefix(NAMES).split()
        for status, pattern in EVENTS.items():
            if (event := pattern.match(line)) and (name := event[1]) in self.names:  # else it is a group of steps
                step = self.seen.setdefault(name, Step(name=name, started=time.monotonic()))
                step.become(status)
                return step
        return None
