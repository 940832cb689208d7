"""Compares two checkouts by what their commands do, or writes anew what the tests expect.

python -m tests.blackbox --before DIR        # differences between that checkout and this one, also of trained weights
python -m tests.blackbox --write             # tests/blackbox/expected.json, but for weights; review it with git diff
"""

import argparse
import json
import pathlib
import sys
import tempfile

from tests.blackbox.scenarios import SCENARIOS, Checkout

ROOT = pathlib.Path(__file__).parents[2]
EXPECTED = pathlib.Path(__file__).with_name("expected.json")


def main() -> int:
    """Returns 1 if there are differences."""
    parser = argparse.ArgumentParser(prog="tests.blackbox", description=__doc__)
    parser.add_argument("--before", type=pathlib.Path, help="another checkout")
    parser.add_argument("--write", action="store_true", help="write what the tests expect")
    parser.add_argument("--only", choices=SCENARIOS, nargs="+", default=list(SCENARIOS))
    args = parser.parse_args()
    observed = {}
    with tempfile.TemporaryDirectory() as directory:
        for name in args.only:
            if args.write and name == "trained_weights":
                continue
            print(name, flush=True)
            observed[name] = SCENARIOS[name](Checkout(root=ROOT, work=pathlib.Path(directory, "now")))
            if args.before:
                before = SCENARIOS[name](Checkout(root=args.before.resolve(), work=pathlib.Path(directory, "before")))
                if before != observed[name]:
                    print(f"{name} differs:\n{json.dumps(before)}\n{json.dumps(observed[name])}")
                    return 1
    if args.write:
        EXPECTED.write_text(json.dumps(observed, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
