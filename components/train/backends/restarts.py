"""Rules of restarts that every back end has: what an exit code means, and when nothing starts again.

kind_of(143) is Kind.PREEMPTION
no_restart_left(Kind.ERROR, used=5, max_restarts=5)   # why, as people read it
"""

import enum
import signal

SAVED = 128 + signal.SIGTERM  # Saved and yielding.
_USER_ERROR = 2  # A mistake in flags or input.
# Signals that come from outside, when a machine is taken away; the others a program raises by its own fault.
_OUTSIDE = frozenset(128 + n for n in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM))
FRUITLESS = 3  # Failures in a row without a new step, after which nothing starts again.
NO_PROGRESS = f"{FRUITLESS} failures in a row without a new step"
FAILS_AGAIN = "it would fail again"  # After a mistake of the user.


class Kind(enum.StrEnum):
    """Cause of a replica's end."""

    ERROR = "error"
    PREEMPTION = "preemption"
    USER_ERROR = "user error"


def kind_of(exit_code: int) -> Kind:
    """Returns what the exit code of a replica says of its end, wherever it ran."""
    if exit_code == _USER_ERROR:
        return Kind.USER_ERROR
    return Kind.PREEMPTION if exit_code in _OUTSIDE else Kind.ERROR


def no_restart_left(kind: Kind, used: int, max_restarts: int) -> str:
    """Returns why nothing starts again after so many restarts for one kind of end; empty if one is left."""
    return f"no restart after {kind}s is left (max_restarts: {max_restarts})" if used >= max_restarts else ""
