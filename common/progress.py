"""Progress of long work: a changing line on a terminal, or a line every 10 seconds elsewhere.

    with track("writing", 60_000, "examples") as advance:
        advance(1000)

Nothing is printed for work that ends before the first line is due.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_TERMINAL_EVERY_S, _LINE_EVERY_S = 1.0, 10.0


@contextlib.contextmanager
def track(what: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yields a function that is called with the number of units done since its last call.

    It prints to stdout, at most once per second on a terminal and once per 10 seconds elsewhere.

    Args:
      what: Name of the work, such as `writing`.
      total: Number of units of the whole work, more than 0.
      unit: Name of the units, such as `examples`.
    """
    terminal, start, done = sys.stdout.isatty(), time.monotonic(), 0
    every_s = _TERMINAL_EVERY_S if terminal else _LINE_EVERY_S
    due = start + every_s

    def advance(more: int) -> None:
        nonlocal done, due
        done += more
        if done and (now := time.monotonic()) >= due:
            seconds, due = now - start, now + every_s
            print(
                f"{what}: {done / total:.0%} of {total:,} {unit} in {seconds:.0f} s, "
                f"about {seconds * (total - done) / done:.0f} s to go",
                end="    \r" if terminal else "\n",
                flush=True,
            )

    yield advance
