"""Steps of a run while it goes on: read from the output of kfp.local, kept in logs, and shown.

steps = Steps(run_dir / "logs")
with Progress(steps) as progress:
    for step in steps.follow(process.stdout):
        progress.show(step)
"""

import dataclasses
import pathlib
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipelines.local.record import read_or_empty

RUNNING, SUCCEEDED, CACHED, FAILED = "running", "succeeded", "cached", "failed"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
NAMES = "Steps: "  # line of the runner with the names of all steps, in an order in which they can run
_EVENT = re.compile(
    r"\d\d:\d\d:\d\d\.\d{3} - [A-Z]+ - (?:Executing task|Task) '?([\w-]+)'?"
    r"(?:\s*$| finished with status (\w+)| (cache hit))"
)
_STATUSES = {None: RUNNING, "SUCCESS": SUCCEEDED, "FAILURE": FAILED, "cache hit": CACHED}
_MARKS = {RUNNING: ("▸", "bold cyan"), SUCCEEDED: ("✓", "green"), CACHED: ("✓", "green"), FAILED: ("✗", "bold red")}
_TRAINING_LINE_S = 5.0


@dataclasses.dataclass(kw_only=True)
class Step:
    """Status of a step, and how long it took; times are seconds of the monotonic clock."""

    name: str
    status: str = RUNNING
    started: float = dataclasses.field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def seconds(self) -> float:
        """Duration until now, or until the step ended."""
        return (self.ended or time.monotonic()) - self.started

    def become(self, status: str) -> None:
        """Begins or ends."""
        self.status = status
        self.ended = None if status == RUNNING else time.monotonic()


class Steps:
    """Log of a run, the part of each step in it, and the status of each step."""

    def __init__(self, log_dir: pathlib.Path) -> None:
        self.log_dir = log_dir
        self.names: Sequence[str] = ()
        self.started: dict[str, Step] = {}

    def first(self, status: str) -> Step | None:
        """Returns the first step with a status; of `RUNNING`, kfp.local has one at most."""
        # A copy, since the terminal is drawn by another thread.
        return next((step for step in [*self.started.values()] if step.status == status), None)

    @property
    def is_training(self) -> bool:
        """Whether the step that is running is `train`."""
        return (step := self.first(RUNNING)) is not None and step.name == "train"

    def log(self, step: Step | None) -> pathlib.Path:
        """Returns the file with the output of a step, or for None of the whole run."""
        return self.log_dir / f"{step.name if step else 'pipeline'}.log"

    def follow(self, lines: Iterable[bytes]) -> Iterator[Step]:
        """Keeps all lines of the runner; yields a step whenever it starts or ends."""
        for raw in lines:
            line = ANSI.sub("", raw.decode("utf-8", errors="replace"))
            _append(self.log(None), line)
            if line.startswith(NAMES):
                self.names = line.removeprefix(NAMES).split()
            name, status = step_event(line) or ("", "")
            if name in self.names:  # others are groups of steps
                step = self.started.setdefault(name, Step(name=name))
                step.become(status)
                self.log(step).touch()
                yield step
            elif step := self.first(RUNNING):
                _append(self.log(step), line.removeprefix("    "))
        if step := self.first(RUNNING):  # the run was stopped before the step ended
            step.become(FAILED)
            yield step


def step_event(line: str) -> tuple[str, str] | None:
    """Returns the name and the status of a step, or a group, that a line of kfp.local without colours reports."""
    event = _EVENT.match(line)
    return event and (event[1], _STATUSES[event[2] or event[3]])


def _append(path: pathlib.Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


class Progress:
    """Prints a line for each step that ends, until the block does.

    On a terminal the step that is running, and those to come, are drawn below; elsewhere a line of training is printed
    now and then.
    """

    def __init__(self, steps: Steps, console: Console | None = None) -> None:
        self._steps = steps
        self._console = console or Console()
        self._ended = threading.Event()
        self._live = Live(get_renderable=self._unfinished, console=self._console, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        if not self._console.is_terminal:
            threading.Thread(target=self._print_training, name="progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._live.stop()

    def show(self, step: Step) -> None:
        """Shows that a step started or ended."""
        if step.status == RUNNING:
            self._live.refresh()
        else:
            self._console.print(self._line(step), soft_wrap=True)

    def print(self, text: str) -> None:
        """Prints a line; from a signal's handler too, which may have come in the middle of printing."""
        threading.Thread(target=self._console.print, args=(text,), daemon=True).start()

    def _print_training(self) -> None:
        last = ""
        while not self._ended.wait(_TRAINING_LINE_S):
            line = training_line(self._steps.log_dir) if self._steps.is_training else ""
            if line not in ("", last):
                self._console.print(f"    {line}", soft_wrap=True, highlight=False)
                last = line

    def _unfinished(self) -> Group:
        lines = [self._line(step)] if (step := self._steps.first(RUNNING)) else []
        waiting = [name for name in self._steps.names if name not in self._steps.started]
        if waiting:
            lines.append(Text("  then " + ", ".join(waiting), style="dim"))
        return Group(*lines)

    def _line(self, step: Step) -> Text:
        mark, style = _MARKS[step.status]
        line = Text(f"{mark} ", style=style).append(f"{step.name:<10}", style="default")
        line.append("    done before" if step.status == CACHED else f"{step.seconds:8.1f} s", style="default not bold")
        if step.name == "train" and step.status in (RUNNING, SUCCEEDED):
            line.append(f"  {training_line(self._steps.log_dir)}", style="dim not bold")
        return line


def training_line(log_dir: pathlib.Path) -> str:
    """Returns the chief's status in words; empty while there is none."""
    status = read_or_empty(log_dir / "chief-0.status.json")
    if not status:
        return ""
    if "train_steps" not in status:
        return f"{status['phase']} for {time.time() - status['time']:.0f} s"
    line = f"step {status['step']}/{status['train_steps']}  loss {status['loss']:.4f}"
    if status["examples_per_s"]:
        line += f"  {status['examples_per_s']:,.0f} examples/s"
    return line if status["phase"] in ("training", "done") else f"{line}  {status['phase']}"
