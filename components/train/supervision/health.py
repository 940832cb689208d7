"""How a replica is: what its status file says, and whether it shows signs of life.

A program that writes status files (`trainer.job.journal`) is frozen when it has not come up in
time, or has written none for longer than its phase can take. One that never does is not judged by
them. A process that was stopped (SIGSTOP) is frozen whatever it runs.
"""

import contextlib
import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import psutil

from common import documents

MOST_BYTES = 64 << 10  # Of a status file.
# The longest that a phase of ours goes without a word, with room to spare: a first call compiles,
# reading checks the whole dataset, and replicas wait for each other (--start-timeout-s, 600 s) and
# then name the missing themselves. A server or worker beats by itself, so its silence says that its
# process does not run at all; one whose TensorFlow hangs is noticed by the chief's silence. Phases
# that are not here (the end, those of other programs) may be silent for ever.
SILENCE_S = {
    "starting": 900.0,
    "serving": 60.0,
    "training": 300.0,
    "saving": 600.0,
    "evaluating": 1800.0,
    "exporting": 600.0,
    "waiting": 120.0,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the launcher waits for replicas, for what."""

    # From the start to the first status; an import of TensorFlow has been seen to take 43 s.
    start_s: float = 300.0
    silence_s: Mapping[str, float] = dataclasses.field(
        default_factory=SILENCE_S.copy
    )  # Between statuses, by phase.
    stopped_s: float = 5.0  # That a process may be stopped (SIGSTOP).
    # From SIGTERM to SIGKILL when the job is to stop or is preempted, in which replicas save. A
    # Spot VM is switched off 30 s after its notice at the latest.
    grace_period_s: float = 25.0
    # The same when there is nothing to save: after a failure, or after the chief's success.
    failure_s: float = 1.0
    # After a failure, to SIGTERM for the others: a client may report late a kill elsewhere.
    report_delay_s: float = 0.5
    # What workers of a synchronous job have to end by themselves after the chief's success.
    join_s: float = 30.0
    evaluator_s: float = 300.0  # The same for the evaluator, which may be at the last checkpoint.
    check_s: float = 0.5  # Between checks of the replicas.


class Vitals:
    """State of one start of a replica, by its status file and its process; without a process id, that is this one."""

    def __init__(self, path: str, pid: int | None = None, started: float = 0.0) -> None:
        self.state: Mapping[
            str, Any
        ] = {}  # The last status: `phase`, `step`, `examples_per_s` and more.
        self.changed = started  # Monotonic time of the last status, or of the start.
        self._path = path
        self._version: tuple[int, int] | None = None
        self._stopped_since: float | None = None
        self._process = psutil.Process(pid)

    def read(self, now: float) -> None:
        """Reads the status file if it is another than before, and whether the process is stopped."""
        self._stopped_since = (self._stopped_since or now) if self.stopped else None
        # It may be missing, be a pipe, or not be complete if the program does not replace it as
        # ours does.
        with (
            contextlib.suppress(OSError, ValueError),
            open(
                self._path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)
            ) as file,
        ):
            file_status = os.fstat(file.fileno())
            version = file_status.st_mtime_ns, file_status.st_ino
            if version != self._version:
                state = documents.parse_json(file.read(MOST_BYTES))
                if isinstance(state, dict) and isinstance(state.get("step"), int):
                    self.state, self.changed, self._version = state, now, version

    @property
    def stopped(self) -> bool:
        """Whether the process does not run because of SIGSTOP."""
        with contextlib.suppress(psutil.Error):
            return self._process.status() == psutil.STATUS_STOPPED
        return False

    @property
    def phase(self) -> str:
        """Phase of the replica, such as `training`; empty before its first status."""
        return str(self.state.get("phase", ""))

    @property
    def step(self) -> int | None:
        """Training step that the replica last reported; None before it trains."""
        return None if self.phase in ("", "starting", "serving") else self.state["step"]

    def summary(self, phase: str) -> str:
        """Returns the progress in words, with the name of a phase: `training, step 7, 120 examples/s`."""
        step = "" if self.step is None else f", step {self.step:,}"
        speed = self.state.get("examples_per_s")  # A program of the user's own may write anything.
        return (
            phase + step + (f", {speed:,.0f} examples/s" if isinstance(speed, int | float) else "")
        )

    def frozen(self, now: float, patience: Patience, *, reports: bool) -> str:
        """Returns why it is to be taken for frozen at monotonic time `now`, or nothing.

        Args:
          now: Monotonic time.
          patience: Limits.
          reports: Whether the program is known to write status files.
        """
        if self._stopped_since is not None and now - self._stopped_since >= patience.stopped_s:
            return f"stopped for {now - self._stopped_since:.0f} s"
        silent_s = now - self.changed
        if not self.state:
            return (
                f"not up after {silent_s:.0f} s" if reports and silent_s >= patience.start_s else ""
            )
        if silent_s >= patience.silence_s.get(self.phase, math.inf):
            return f"no sign of life for {silent_s:.0f} s while {self.phase}"
        return ""
