"""State of a replica, by its status file and its process, and the rules by which it is frozen.

A program that writes status files (`trainer.job.journal`) counts as frozen if it writes no first
status in time, or no further one for longer than its phase can take. A program that never writes
one is not judged by them. A process that was stopped (SIGSTOP) counts as frozen whatever it runs.
"""

import contextlib
import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import psutil

from common import documents

MOST_BYTES = 64 << 10  # Maximum number of bytes that are read of a status file.
# Longest silence by phase, in seconds, before a replica counts as frozen. The values leave room for
# what a phase may wait for: the first call compiles, reading checks the whole dataset, and replicas
# wait for each other (600 s at most) and then name the missing ones themselves. Servers
# and workers write their status from a thread, so their silence means that the process does not run
# at all; if TensorFlow hangs there, the chief's silence shows it. Phases that are not listed (the
# end, and those of other programs) may be silent for any time.
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
    """Time limits of the launcher for its replicas, in seconds.

    Attributes:
      start_s: From the start of a replica to its first status.
      silence_s: Between two statuses, by phase; other phases have no limit.
      stopped_s: For which a process may be stopped (SIGSTOP).
      grace_period_s: From SIGTERM to SIGKILL when the job is stopped or preempted; replicas save
        meanwhile.
      failure_s: From SIGTERM to SIGKILL when there is nothing to save: after a failure, or after
        the chief's success.
      report_delay_s: From a failure to SIGTERM for the other replicas.
      join_s: From the chief's success to SIGTERM for the workers of a synchronous job.
      evaluator_s: From the chief's success to SIGTERM for the evaluator, which may still have to
        evaluate the last checkpoint.
      check_s: Interval between two checks of the replicas.
    """

    start_s: float = 300.0  # An import of TensorFlow has been seen to take 43 s.
    silence_s: Mapping[str, float] = dataclasses.field(default_factory=SILENCE_S.copy)
    stopped_s: float = 5.0
    grace_period_s: float = 25.0  # A Spot VM is switched off at most 30 s after its notice.
    failure_s: float = 1.0
    # The client of a replica on another host may report its end later than the others fail.
    report_delay_s: float = 0.5
    join_s: float = 30.0
    evaluator_s: float = 300.0
    check_s: float = 0.5


class Vitals:
    """State of a replica since its last start, by its status file and its process.

    Args:
      path: Status file, which may not exist yet.
      pid: Id of the replica's process; None for the present process.
      started: Monotonic time of the start.

    Attributes:
      state: Content of the newest status: `step`, and usually `phase`, `examples_per_s` and more;
        empty before the first one.
      changed: Monotonic time at which the newest status was read; the start before the first one.

    Raises:
      psutil.NoSuchProcess: If there is no process `pid`.
    """

    def __init__(self, path: str, pid: int | None = None, started: float = 0.0) -> None:

        self.state: Mapping[str, Any] = {}
        self.changed = started
        self._path = path
        self._version: tuple[int, int] | None = None
        self._stopped_since: float | None = None
        self._process = psutil.Process(pid)

    def read(self, now: float) -> None:
        """Reads the status file if it has changed, and notes whether the process is stopped.

        A file that is missing, damaged or without an integer `step` leaves `state` as it is.

        Args:
          now: Monotonic time.
        """
        self._stopped_since = (self._stopped_since or now) if self.stopped else None
        # A program of the user's own may make anything of this file: a pipe, whose opening must not
        # block, or a file that is not complete, as the program does not replace it atomically.
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
        """True if the process is stopped by SIGSTOP; False if there is no such process."""
        with contextlib.suppress(psutil.Error):
            return self._process.status() == psutil.STATUS_STOPPED
        return False

    @property
    def phase(self) -> str:
        """Phase in the newest status, such as `training`; empty if that names none."""
        return str(self.state.get("phase", ""))

    @property
    def step(self) -> int | None:
        """Training step in the newest status; None before it has begun to train.

        That is without a status, or without a phase in it, or in the phase `starting` or `serving`.
        """
        return None if self.phase in ("", "starting", "serving") else self.state["step"]

    def summary(self, phase: str) -> str:
        """Returns the progress for people, such as `training, step 7, 120 examples/s`.

        Step and speed are left out if the newest status does not have them.

        Args:
          phase: Word with which the text begins.
        """
        step = "" if self.step is None else f", step {self.step:,}"
        speed = self.state.get("examples_per_s")  # A program of the user's own may write anything.
        return (
            phase + step + (f", {speed:,.0f} examples/s" if isinstance(speed, int | float) else "")
        )

    def frozen(self, now: float, patience: Patience, *, reports: bool) -> str:
        """Returns the reason why the replica counts as frozen; an empty text if it does not.

        It does if, as of the last `read`, the process was stopped, or its status was missing or
        unchanged, for as long as `patience` says.

        Args:
          now: Monotonic time.
          patience: Time limits.
          reports: Whether the program is known to write status files. If not, a missing first
            status does not count.
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
