"""The restart policy of all back ends: meaning of exit codes, who restarts, and when to give up.

    kind_of(143) is Kind.PREEMPTION
    decide("worker", "multi_worker_mirrored", 137) is Follows.RESTART_ALL
    budget, why = budget.charged(Kind.ERROR, 1, max_restarts=5)
    # If `why` is not empty, nothing starts again.

| end of a replica | kind | consequence |
| --- | --- | --- |
| exit code 2 | user error | no restart: it would fail again |
| 143; 137, 130, 129 from outside; lost machines | preemption | restart, at most `max_restarts` |
| any other exit code but 0, and a frozen replica | error | restart, at most `max_restarts` |

Restarts after preemptions and after errors are counted apart. Several failures in a row without a
new step end the job. An evaluator has a budget of its own, and its failures never end the job.

All functions are pure. `decide` is for replicas that `supervisor` starts. Each custom job of Vertex
AI is one attempt of all replicas, which `backends.attempts` charges to the same kind of budget.
"""

import dataclasses
import enum
import signal
from typing import Self

SAVED = 128 + signal.SIGTERM  # Exit code of a replica that has saved after SIGTERM.
KILLED = 128 + signal.SIGKILL
NO_CAPACITY, TIMED_OUT = 75, 124  # Exit codes: EX_TEMPFAIL of sysexits.h, and that of timeout(1).
USER_ERROR = 2  # Exit code after a mistake in flags or input.
# Exit codes after signals that come from outside, such as when a machine is taken away. A program
# causes the other signals itself.
_OUTSIDE = frozenset(
    128 + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
)
MAX_FRUITLESS = 3  # Failures in a row without a new step, after which nothing starts again.
_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 5.0


class Kind(enum.StrEnum):
    """Cause of the end of a replica or job."""

    ERROR = "error"
    PREEMPTION = "preemption"
    USER_ERROR = "user error"


def kind_of(exit_code: int) -> Kind:
    """Returns the cause of the end that an exit code other than 0 stands for.

    2 is a user error; 129, 130, 137 and 143 (SIGHUP, SIGINT, SIGKILL, SIGTERM) are preemptions; all
    others are errors.

    Args:
      exit_code: Exit code as a shell has it, 128+n after signal n.
    """
    if exit_code == USER_ERROR:
        return Kind.USER_ERROR
    return Kind.PREEMPTION if exit_code in _OUTSIDE else Kind.ERROR


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """Restarts that a job, or its evaluator, has used.

    Attributes:
      errors: Number of restarts after errors.
      preemptions: Number of restarts after preemptions.
      fruitless: Number of failures in a row without a new step.
      step: Highest training step that was reported; None if there was none.
      before: Value of `step` at the failure before; without one, the first step reported.
    """

    errors: int = 0
    preemptions: int = 0
    fruitless: int = 0
    step: int | None = None
    before: int = 0

    @property
    def backoff_s(self) -> float:
        """Seconds before the next start: 0, or after failures in a row 0.5, 1.5, 3.5, then 5."""
        return min(_LONGEST_BACKOFF_S, _BACKOFF_S * (2**self.fruitless - 1))

    def noted(self, step: int | None) -> Self:
        """Returns the budget after a replica has reported this training step; None for no step."""
        if step is None:
            return self
        if self.step is None:
            return dataclasses.replace(self, step=step, before=step)
        return dataclasses.replace(self, step=max(step, self.step))

    def charged(
        self,
        kind: Kind,
        exit_code: int,
        max_restarts: int,
        *,
        reports: bool = True,
        fruitless: float = MAX_FRUITLESS,
    ) -> tuple[Self, str]:
        """Counts the end of a replica or job.

        If there was a new step since the failure before, the count of failures in a row becomes 0.

        Args:
          kind: Cause of the end. After a user error nothing can start again, and the budget stays
            as it is.
          exit_code: Exit code. 143 counts as a restart, but not as a failure in a row.
          max_restarts: Bound on the restarts after errors, and on those after preemptions.
          reports: Whether the program reports its steps. If not, and no step is known, each end
            counts as one with a new step.
          fruitless: Number of failures in a row without a new step at which nothing starts again.
            It is checked before `max_restarts`.

        Returns:
          The budget after the end, and why nothing can start again; empty if a restart is allowed,
          which is then counted in `errors` or `preemptions`.
        """
        if kind is Kind.USER_ERROR:
            return self, "it would fail again"
        in_a_row = self.fruitless + (exit_code != SAVED)
        if (self.step or 0) > self.before or (self.step is None and not reports):
            in_a_row = 0
        after = dataclasses.replace(self, fruitless=in_a_row, before=self.step or 0)
        if in_a_row >= fruitless:
            if fruitless == 1:
                return after, "it failed and came no further than before"
            return after, f"{fruitless} failures in a row without a new step"
        count = f"{kind}s"
        used = getattr(self, count)
        if used >= max_restarts:
            return after, f"no restart after {count} is left (max_restarts: {max_restarts})"
        return dataclasses.replace(after, **{count: used + 1}), ""


class Follows(enum.Enum):
    """Consequence of the end of a replica that ended by itself or was killed as frozen."""

    DONE = enum.auto()  # The job is done, and the other replicas are stopped.
    NOTHING = enum.auto()
    RESTART_ONE = enum.auto()  # Only this replica starts again; the others continue.
    RESTART_ALL = enum.auto()  # All others are stopped first, then all start again.


def decide(role: str, strategy: str, exit_code: int) -> Follows:
    """Returns the consequence of the end of a replica, if its budget allows a restart.

    With exit code 0 the job is done for the chief, and nothing follows for others. With another
    one, an evaluator starts again alone; so does a worker with parameter servers, unless its code
    is 143. In all other cases all replicas start again.

    Args:
      role: Role of the replica.
      strategy: Strategy of the cluster.
      exit_code: Exit code as a shell has it, 128+n after signal n.
    """
    if exit_code == 0:
        return Follows.DONE if role == "chief" else Follows.NOTHING
    # With parameter servers, the chief gives the work of a dead worker to others until it is back.
    # But a worker that ends with 143 has already made all others save and end. The evaluator can
    # restart alone, since it only reads checkpoints.
    if role == "evaluator" or (
        strategy == "parameter_server" and role == "worker" and exit_code != SAVED
    ):
        return Follows.RESTART_ONE
    return Follows.RESTART_ALL
