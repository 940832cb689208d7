"""Types of the values of flags, for argparse: what is wrong is shown as it was typed, with what would be allowed.

    parser.add_argument("--train-steps", type=at_least(1))

Every number has a largest value too, far beyond use and within what TensorFlow can count: it may
end in C++ otherwise.
"""

import argparse
import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from common.errors import UserError

MOST = 2**31 - 1
_MOST_REAL = 1e9


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type for argparse."""

    convert: Callable[[str], Any]  # from text to a value; ValueError if it is none
    holds: Callable[[Any], bool]  # whether a value is allowed
    says: str  # what is allowed, in words
    metavar: str = "X"  # stands for a value in the help

    def __call__(self, text: str) -> Any:
        """The value of a text."""
        with contextlib.suppress(ValueError):
            if self.holds(value := self.convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {self.says}")


def at_least(least: int, most: int = MOST) -> Kind:
    """The type of a whole number with bounds."""
    says = f"a whole number of at least {least} and at most {most}"
    return Kind(int, lambda value: least <= value <= most, says, "N")


positive = Kind(
    float,
    lambda value: 0 < value <= _MOST_REAL,
    f"a number greater than 0 and at most {_MOST_REAL:g}",
)
not_negative = Kind(
    float,
    lambda value: 0 <= value <= _MOST_REAL,
    f"a number of at least 0 and at most {_MOST_REAL:g}",
)
share = Kind(float, lambda value: 0 <= value < 1, "a number of at least 0 and less than 1")
zero_to_one = Kind(float, lambda value: 0 <= value <= 1, "a number from 0 to 1")
_BUCKET = re.compile("gs://[^/]")
# A folder `gs:` here would be made of a bucket's name that is misspelt, or given where no bucket
# can be.
local = Kind(
    str,
    lambda text: bool(text) and "://" not in text and not text.startswith("gs:/"),
    "a path (a mounted bucket is one)",
)
place = Kind(
    str, lambda text: local.holds(text) or bool(_BUCKET.match(text)), "a path or gs://BUCKET/NAME"
)


def several(kind: Kind) -> Kind:
    """The type of values with commas between them: a tuple."""
    return Kind(
        lambda text: tuple(map(kind, text.split(","))),
        bool,
        "a list",
        f"{kind.metavar},{kind.metavar}",
    )


def job_directory(text: str) -> str:
    """The type of a job's directory, in which TensorFlow is to find what it has written, checkpoints and models.

    It takes the names for patterns, which with brackets or backslashes mean others.
    """
    if set("[\\") & set(text):
        raise argparse.ArgumentTypeError(
            f"TensorFlow takes {text!r} for a pattern, and would not find its own files; use a "
            "name without [ and \\"
        )
    return place(text)


def variable(
    name: str, parse: Callable[[str], Any], environ: Mapping[str, str] = os.environ
) -> Any:
    """The value of an environment variable; that of "0" where it is not set."""
    try:
        return parse(environ.get(name) or "0")
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{name}: {error}; unset it or set it to one") from None
