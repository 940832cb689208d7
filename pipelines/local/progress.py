"""What a person sees while a run goes on: each step with its time, and the training's step, loss and speed.

On a terminal the lines are drawn again in place; elsewhere a line is printed when something happened.
"""

import pathlib
import threading
import time
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from pipelines.local.record import read_if_whole
from pipelines.local.steps import CACHED, FAILED, RUNNING, SUCCEEDED, Step, Steps

_MARKS = {RUNNING: ("▸", "bold cyan"), SUCCEEDED: ("✓", "green"), CACHED: ("✓", "green"), FAILED: ("✗", "bold red")}
_TRAINING_LINE_S = 5.0


class Progress:
    """Shows the steps of one run until the block ends."""

    def __init__(self, steps: Steps, log_dir: pathlib.Path, console: Console | None = None) -> None:
        self._steps, self._status = steps, log_dir / "chief-0.status.json"
        self._console = console or Console()
        self._ended = threading.Event()
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._console.is_terminal:
            self._live.stop()

    def changed(self, step: Step) -> None:
        """Tells of a step that started or ended, where nothing is drawn in place."""
        if not self._console.is_terminal and step.status != RUNNING:
            self._console.print(self._line(step), soft_wrap=True)

    def tell(self, text: str) -> None:
        """Prints a line above; from a signal's handler too, which may have come in the middle of printing."""
        threading.Thread(target=self._console.print, args=(text,), daemon=True).start()

    def _tick(self) -> None:
        """Prints a line of training now and then."""
        last = None
        while not self._ended.wait(_TRAINING_LINE_S):
            if self._steps.is_training and (line := training(self._status)) and line != last:
                self._console.print(f"    {line}", soft_wrap=True, highlight=False)
                last = line

    def _render(self) -> Group:
        lines = [self._line(step) for step in self._steps.seen.values()]
        waiting = [name for name in self._steps.names if name not in self._steps.seen]
        if not self._ended.is_set() and waiting:
            lines.append(Text("  then " + ", ".join(waiting), style="dim"))
        return Group(*lines)

    def _line(self, step: Step) -> Text:
        mark, style = _MARKS[step.status]
        line = Text(f"{mark} ", style=style).append(f"{step.name:<10}", style="default")
        line.append("    done before" if step.status == CACHED else f"{step.seconds:8.1f} s", style="default not bold")
        if step.name == "train" and step.status in (RUNNING, SUCCEEDED) and (detail := training(self._status)):
            line.append(f"  {detail}", style="dim not bold")
        return line


def training(status: pathlib.Path) -> str:
    """The chief's status file in words; empty while there is none."""
    if not (state := read_if_whole(status)):
        return ""
    if "train_steps" not in state:
        return f"{state['phase']} for {time.time() - state['time']:.0f} s"
    text = f"step {state['step']}/{state['train_steps']}  loss {state['loss']:.4f}"
    if state["examples_per_s"]:
        text += f"  {state['examples_per_s']:,.0f} examples/s"
    return text if state["phase"] in ("training", "done") else f"{text}  {state['phase']}"
