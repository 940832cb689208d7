"""Steps of a run while it goes on: read from the output of kfp.local, kept in logs, and shown.

with Progress(run_dir / "logs") as progress:
    for step in progress.follow(process.stdout):
        print(step.status)
"""

import dataclasses
import pathlib
import re
import threading
import time
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

RUNNING, SUCCEEDED, CACHED, FAILED = "running", "succeeded", "cached", "failed"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
_EVENT = re.compile(
    r"\d\d:\d\d:\d\d\.\d{3} - [A-Z]+ - (?:Executing task|Task) '?([\w-]+)'?"
    r"(?:\s*$| finished with status (\w+)| (cache hit))"
)
_STATUSES = {None: RUNNING, "SUCCESS": SUCCEEDED, "FAILURE": FAILED, "cache hit": CACHED}
_GROUPS = ("exit-handler-", "condition-")  # tasks that are groups of others
_TRAINING = re.compile(r"\s*chief/0 \| (step \d+/\d+  loss \S+).*  (\S+ examples/s)")
_MARKS = {
    RUNNING: ("▸", "bold cyan"),
    SUCCEEDED: ("✓", "green"),
    CACHED: ("✓", "green"),
    FAILED: ("✗", "bold red"),
}


@dataclasses.dataclass(kw_only=True)
class Step:
    """Status of a step, and how long it took; times are seconds of the monotonic clock."""

    name: str
    status: str = RUNNING
    started: float = dataclasses.field(default_factory=time.monotonic)
    ended: float | None = None
    training: str = ""  # what the chief has said last of its progress

    @property
    def seconds(self) -> float:
        """Duration until now, or until the step ended."""
        return (self.ended or time.monotonic()) - self.started


class Progress(Live):
    """Status of each step, and the log of the run with the part of each step in it.

    A line is printed for each step that ends. The step that is running is drawn below on a
    terminal; elsewhere the training's own lines are printed.
    """

    def __init__(self, log_dir: pathlib.Path, console: Console | None = None) -> None:
        self.log_dir = log_dir
        self.steps: dict[str, Step] = {}
        super().__init__(console=console, transient=True)

    def first(self, status: str) -> Step | None:
        """Returns the first step with a status; of `RUNNING`, kfp.local has one at most."""
        # A copy, since the terminal is drawn by another thread.
        return next((step for step in [*self.steps.values()] if step.status == status), None)

    def log(self, step: Step | None) -> pathlib.Path:
        """Returns the file with the output of a step, or for None of the whole run."""
        return self.log_dir / f"{step.name if step else 'pipeline'}.log"

    def follow(self, lines: Iterable[bytes]) -> Iterator[Step]:
        """Keeps all lines of the runner, and shows what they say; yields a step whenever it starts, comes further or ends."""
        for raw in lines:
            line = ANSI.sub("", raw.decode("utf-8", errors="replace"))
            self._keep(line, None)
            event = step_event(line)
            if event and not event[0].startswith(_GROUPS):
                name, status = event
                step = self.steps.setdefault(name, Step(name=name))
                if status != RUNNING:
                    self._end(step, status)
                yield step
            elif step := self.first(RUNNING):
                self._keep(line.removeprefix("    "), step)
                if training := _TRAINING.match(line):
                    step.training = "  ".join(training.groups())
                    if not self.console.is_terminal:
                        self.console.print(f"    {step.training}", soft_wrap=True, highlight=False)
                    yield step
        if step := self.first(RUNNING):  # the run was stopped before the step ended
            self._end(step, FAILED)
            yield step

    def print(self, text: str) -> None:
        """Prints a line; from a signal's handler too, which may have come in the middle of printing."""
        threading.Thread(target=self.console.print, args=(text,), daemon=True).start()

    def get_renderable(self) -> Text:
        """Returns what is drawn: the step that is running."""
        step = self.first(RUNNING)
        return _line(step) if step else Text()

    def _keep(self, line: str, step: Step | None) -> None:
        with self.log(step).open("a", encoding="utf-8") as file:
            file.write(line)

    def _end(self, step: Step, status: str) -> None:
        step.status = status
        step.ended = time.monotonic()
        self.console.print(_line(step), soft_wrap=True)


def step_event(line: str) -> tuple[str, str] | None:
    """Returns the name and the status of a step, or a group, that a line of kfp.local without colours reports."""
    event = _EVENT.match(line)
    return event and (event[1], _STATUSES[event[2] or event[3]])


def _line(step: Step) -> Text:
    mark, style = _MARKS[step.status]
    duration = "    done before" if step.status == CACHED else f"{step.seconds:8.1f} s"
    training = f"  {step.training}" if step.training else ""
    return Text.assemble((mark, style), f" {step.name:<10}{duration}", (training, "dim"))
