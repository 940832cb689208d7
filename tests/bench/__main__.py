"""`make bench`: our speed as ratios to the usual way, both measured in turn in one run.

On shared machines absolute rates drift by a factor of two, so every pair is repeated in alternation
and the median of the ratios is what counts. `python -m tests.bench convert` runs one of them;
`--repeats N` changes how often.
"""

import argparse
import functools
from collections.abc import Callable, Mapping

from common.machine import processor, usable_cores
from tests.bench import convert, read, train
from tests.bench.race import race

BENCHES: Mapping[str, Callable[[], Mapping[str, Callable[[], float]]]] = {
    "convert": convert.images,
    "convert-tfds": convert.builder,
    "convert-rows": convert.rows,
    "convert-pandas": functools.partial(convert.peer, "pandas"),
    "convert-duckdb": functools.partial(convert.peer, "duckdb"),
    "read": read.plain,
    "read-augmented": read.augmented,
    "read-opening": read.opening,
    **train.RACES,
}


def main() -> None:
    """Runs the benches that are named, or all."""
    p = argparse.ArgumentParser(prog="tests.bench", description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; all without")
    p.add_argument("--repeats", type=int, default=5)
    args = p.parse_args()
    print(f"{processor()}, {usable_cores()} cores", flush=True)
    for name in args.names or BENCHES:
        print(f"{name}:", flush=True)
        try:
            contestants = BENCHES[name]()
        except FileNotFoundError as error:
            print(f"  skipped: {error.filename} is not there")
            continue
        if contestants:
            race(contestants, args.repeats)


if __name__ == "__main__":
    main()
