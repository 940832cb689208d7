"""Spellings of a table's values that the converter and the exported model accept alike.

    marks(("", "NA", "-1"), "int64")      # (-1,): numbers are compared by value, however written
    marks(("", "NA", "-1"), "string")     # ("", "NA", "-1"): texts are compared as they are

Booleans may be in letters of any case, with white space around them (all ASCII); the first spelling
of each is stored. The regular expressions are for RE2 and match whole texts. Imports no TensorFlow.
"""

import contextlib
import decimal
from collections.abc import Sequence

import numpy as np

TRUE = ("true", "t", "yes", "y", "1")
FALSE = ("false", "f", "no", "n", "0")
EITHER = f"{' '.join(TRUE)} or {' '.join(FALSE)}"
WHOLE_NUMBER = r"[ \t]*-?[0-9]+[ \t]*"
NUMBER = r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*"
# The groups are year, month, day, hour, minute, second, and the zone's sign, hours and minutes.
ISO_8601 = (
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"(?:[T ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.\d+)?)?"
    r"(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))?)?"
)
KINDS = {  # Descriptions of a valid value, by the type of its column.
    "float": "finite 32-bit number",
    "int": "64-bit whole number",
    "string": "text in UTF-8 of at most 16 MiB",
    "bool": f"boolean, which is {EITHER}",
    "time": "date or time as in ISO 8601",
}
ABSENT = "is missing, and the schema has no default for it"
_INT64 = np.iinfo(np.int64)


def marks(
    texts: Sequence[str], dtype: str
) -> tuple[str, ...] | tuple[int, ...] | tuple[float, ...]:
    """Returns the values of a column that stand for a missing one.

    Args:
      texts: Texts that stand for a missing value.
      dtype: Type of the column: `float32`, `int64` or `string`.

    Returns:
      The texts themselves for `string`. Otherwise the numbers that the texts stand for: floats
      rounded to `float32`, or whole numbers, which may be written as `7.0`. Texts that are no
      number of that type are left out, and so is NaN, which equals nothing.
    """
    if dtype == "string":
        return tuple(texts)
    found = []
    for text in texts:
        with contextlib.suppress(ValueError, decimal.InvalidOperation), np.errstate(over="ignore"):
            if dtype != "int64":
                found.append(float(np.float32(float(text))))
            elif _INT64.min <= (number := decimal.Decimal(text)) <= _INT64.max and number % 1 == 0:
                found.append(int(number))
    return tuple(mark for mark in found if mark == mark)
