"""Steps of a run while it goes on: read from the output of kfp.local, logged and shown.

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
_GROUPS = ("exit-handler-", "condition-")  # Prefixes of tasks that are groups of other tasks.
_TRAINING = re.compile(r"\s*chief/0 \| (step \d+/\d+  loss \S+).*  (\S+ examples/s)")
_MARKS = {
    RUNNING: ("▸", "bold cyan"),
    SUCCEEDED: ("✓", "green"),
    CACHED: ("✓", "green"),
    FAILED: ("✗", "bold red"),
}


@dataclasses.dataclass(kw_only=True)
class Step:
    """A step of a run.

    Attributes:
      name: Name of the step.
      status: `running`, `succeeded`, `cached` or `failed`.
      started: When it started, in seconds of the monotonic clock.
      ended: When it ended, likewise; None while it runs.
      training: Last line of progress from the chief replica; empty in other steps.
    """

    name: str
    status: str = RUNNING
    started: float = dataclasses.field(default_factory=time.monotonic)
    ended: float | None = None
    training: str = ""

    @property
    def seconds(self) -> float:
        """Duration in seconds, from the start to the end of the step; until now while it runs."""
        return (self.ended or time.monotonic()) - self.started


class Progress(Live):
    """Display of a run's steps, which also writes the log of the run and one for each step.

    It prints a line for each step that ends. On a terminal it draws the running step below these
    lines; elsewhere it prints the training's lines of progress.

    Attributes:
      log_dir: Directory of the logs.
      steps: Steps by name, in the order in which they started.
    """

    def __init__(self, log_dir: pathlib.Path, console: Console | None = None) -> None:
        self.log_dir = log_dir
        self.steps: dict[str, Step] = {}
        super().__init__(console=console, transient=True)

    def first(self, status: str) -> Step | None:
        """Returns the first step with a status, or None. At most one step is `RUNNING`."""
        # The loop is over a copy, since the thread that draws the terminal calls this too.
        return next((step for step in [*self.steps.values()] if step.status == status), None)

    def log(self, step: Step | None) -> pathlib.Path:
        """Returns the path `<step>.log` of the log of a step, or `pipeline.log` for the whole run.

        Args:
          step: The step; None for the whole run.
        """
        return self.log_dir / f"{step.name if step else 'pipeline'}.log"

    def follow(self, lines: Iterable[bytes]) -> Iterator[Step]:
        """Appends the lines of the runner's output to the logs, and shows what they report.

        Args:
          lines: Output of `pipelines.local.runner`, until it ends.

        Yields:
          The step, whenever it starts, makes progress in training, or ends. A step that is still
          running when the output ends has failed, and is yielded once more.
        """
        for raw in lines:
            # All lines go to the log of the run. Those between the start and the end of a step are
            # its output, which kfp.local indents.
            line = ANSI.sub("", raw.decode("utf-8", errors="replace"))
            self._keep(line, None)
            event = step_event(line)
            if event and not event[0].startswith(_GROUPS):
                name, status = event
                step = self.steps.setdefault(name, Step(name=name))
                if status != RUNNING:
                    self._end(step, status)
                yield step
            elif running := self.first(RUNNING):
                self._keep(line.removeprefix("    "), running)
                if training := _TRAINING.match(line):
                    running.training = "  ".join(training.groups())
                    if not self.console.is_terminal:
                        self.console.print(
                            f"    {running.training}", soft_wrap=True, highlight=False
                        )
                    yield running
        if running := self.first(RUNNING):  # The run was stopped before the step ended.
            self._end(running, FAILED)
            yield running

    def print(self, text: str) -> None:
        """Prints a line. A signal's handler may call this, even in the middle of other printing.

        It prints in a thread, since the handler might else wait for a lock that its own thread
        holds.
        """
        threading.Thread(target=self.console.print, args=(text,), daemon=True).start()

    def get_renderable(self) -> Text:
        """Returns what rich draws: the step that is running, or nothing."""
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
    """Returns the name and the status of the step or group of steps that a line reports.

    Args:
      line: Line of kfp.local's output without colours.

    Returns:
      Name and status (`running`, `succeeded`, `cached` or `failed`); None if the line reports no
      start or end.
    """
    event = _EVENT.match(line)
    return event and (event[1], _STATUSES[event[2] or event[3]])


def _line(step: Step) -> Text:
    mark, style = _MARKS[step.status]
    duration = "    done before" if step.status == CACHED else f"{step.seconds:8.1f} s"
    training = f"  {step.training}" if step.training else ""
    return Text.assemble((mark, style), f" {step.name:<10}{duration}", (training, "dim"))
