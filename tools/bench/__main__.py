"""`make bench`: our speed as ratios to the usual way, both measured in turn in one run.

On shared machines absolute rates drift by a factor of two, so every pair is repeated in alternation
and the median of the ratios is what counts. `python -m tools.bench convert` runs one of them;
`--repeats N` changes how often.
"""

import argparse

from common.machine import processor, usable_cores
from tools.bench import convert, train
from tools.bench.race import Contestants, race

BENCHES: dict[str, Contestants] = {**convert.RACES, **train.RACES}


def main():
    """Runs the benches that are named, or all."""
    p = argparse.ArgumentParser(prog="tools.bench", description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)}; all without")
    p.add_argument("--repeats", type=int, default=5)
    args = p.parse_args()
    print(f"{processor()}, {usable_cores()} cores", flush=True)
    for name in args.names or BENCHES:
        print(f"{name}:", flush=True)
        try:
            race(BENCHES[name](), args.repeats)
        except FileNotFoundError as error:
            print(f"  skipped: {error.filename} is not there")


if __name__ == "__main__":
    main()
