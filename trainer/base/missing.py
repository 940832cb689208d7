"""Which values of a column stand for one that is missing: for the converter, and for the exported model alike.

    marks(("", "NA", "-1"), "int64")      # (-1,)
    marks(("", "NA", "-1"), "string")     # ("", "NA", "-1")

A text is missing if it is one of the schema's; a number, if it equals one of those that are numbers, however it is
written. NaN is no number, so it is among the marks of none.
"""

import contextlib
from collections.abc import Sequence

import numpy as np

_INT64 = np.iinfo(np.int64)


def marks(texts: Sequence[str], dtype: str) -> tuple[str, ...] | tuple[int, ...] | tuple[float, ...]:
    """The texts as values of a column of that type: `float32` (exactly as it holds them), `int64` or `string`."""
    if dtype == "string":
        return tuple(texts)
    found = []
    for text in texts:
        with contextlib.suppress(ValueError), np.errstate(over="ignore"):
            found.append(int(text) if dtype == "int64" else float(np.float32(float(text))))
    return tuple(mark for mark in found if mark == mark and (dtype != "int64" or _INT64.min <= mark <= _INT64.max))
