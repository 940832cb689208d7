"""`make bench`: our speed as ratios to the usual way, both measured in turn in one run.

On shared machines absolute rates drift by a factor of two, so every pair is repeated in alternation and the median of
the ratios is what counts. `python -m tests.bench convert` runs one of them; `--repeats N` changes how often.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping

from tests.bench import convert, train

BENCHES: Mapping[str, Callable[[], Mapping[str, Callable[[], float]]]] = {
    "convert": convert.contestants,
    "train": train.contestants,
}


def ratios(contestants: Mapping[str, Callable[[], float]], repeats: int) -> None:
    """Runs all in turn, `repeats` times after a warm-up, and prints medians and ratios to the last."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            examples = run()
            if repeat:
                rates[name].append(examples / (time.perf_counter() - start))
    *_, peer = contestants
    for name, measured in rates.items():
        paired = [a / b for a, b in zip(measured, rates[peer], strict=True)]
        low, high = min(paired), max(paired)
        print(
            f"  {name:<34} {statistics.median(measured):>10,.0f} examples/s   "
            f"{statistics.median(paired):6.2f} of the last  [{low:.2f}, {high:.2f}]"
        )


def main() -> None:
    """Runs the benches that are named, or all."""
    p = argparse.ArgumentParser(prog="tests.bench", description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; all without")
    p.add_argument("--repeats", type=int, default=5)
    args = p.parse_args()
    for name in args.names or BENCHES:
        print(f"{name}:")
        ratios(BENCHES[name](), args.repeats)


if __name__ == "__main__":
    main()
