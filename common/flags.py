"""Types of flags' values for argparse, whose errors show the text as typed and what is allowed.

    parser.add_argument("--train-steps", type=at_least(1))

Every number has an upper bound too, far above useful values and within TensorFlow's integers, as a
larger one may crash in TensorFlow's C++ code.
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
    """Type of a flag's value, for argparse."""

    convert: Callable[[str], Any]  # Converts a text to a value, or raises ValueError.
    holds: Callable[[Any], object]  # Returns something true if a value is allowed.
    says: str  # Allowed values in words, for messages.
    metavar: str = "X"  # Placeholder for a value in the help.

    def __call__(self, text: str) -> Any:
        """Returns the value of a text.

        Raises:
          argparse.ArgumentTypeError: If the text is not a value of this type.
        """
        with contextlib.suppress(ValueError):
            if self.holds(value := self.convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {self.says}")


def at_least(least: int, most: int = MOST) -> Kind:
    """Returns the argparse type of flags whose value is a whole number from `least` to `most`.

    Both bounds are included. For any other text the type raises `argparse.ArgumentTypeError`.
    """
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
# A misspelt `gs://` address, or one where only a local path is possible, would otherwise create a
# folder called `gs:`.
local = Kind(
    str,
    lambda text: bool(text) and "://" not in text and not text.startswith("gs:/"),
    "a path (a mounted bucket is one)",
)
place = Kind(
    str, lambda text: local.holds(text) or bool(_BUCKET.match(text)), "a path or gs://BUCKET/NAME"
)


def several(kind: Kind) -> Kind:
    """Returns the type of a tuple of one or more values of `kind`, written with commas between."""
    return Kind(
        lambda text: tuple(map(kind, text.split(","))),
        bool,
        "a list",
        f"{kind.metavar},{kind.metavar}",
    )


def job_directory(text: str) -> str:
    """Returns the path of a job's directory, unchanged; made to be used as argparse's `type`.

    TensorFlow looks for checkpoints and models in it by patterns, so it would not find its own
    files in a directory with brackets or backslashes in its name.

    Raises:
      argparse.ArgumentTypeError: If the text is no path, local or `gs://BUCKET/NAME`, or contains
        `[` or a backslash.
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
    """Returns the value of an environment variable, parsed by `parse`.

    A variable that is not set, or empty, is parsed as the text "0".

    Raises:
      UserError: If `parse` raises an `ArgumentTypeError`; the message names the variable.
    """
    try:
        return parse(environ.get(name) or "0")
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{name}: {error}; unset it or set it to one") from None
