"""Types of the values of flags, for argparse: what is wrong is shown as it was typed, with what would be allowed.

Synopsis:

    parser.add_argument("--train-steps", type=at_least(1))
    parser.add_argument("--timeout-s", type=positive)
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable
from typing import Any


def _checked(kind: type, holds: Callable[[Any], bool], says: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if holds(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {says}")

    return parse


def at_least(least: int) -> Callable[[str], int]:
    """The type of a whole number with a lower bound."""
    return _checked(int, lambda value: value >= least, f"a whole number of at least {least}")


positive = _checked(float, lambda value: 0 < value < math.inf, "a number greater than 0")
not_negative = _checked(float, lambda value: 0 <= value < math.inf, "a number of at least 0")
share = _checked(float, lambda value: 0 <= value < 1, "a number of at least 0 and less than 1")
