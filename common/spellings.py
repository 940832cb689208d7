"""How a table's values may be written: for the converter, and for the exported model alike.

    marks(("", "NA", "-1"), "int64")      # (-1,): of a number, what equals one of the texts, however it is written
    marks(("", "NA", "-1"), "string")     # ("", "NA", "-1"): of a text, the text itself

What is true or false may be in letters of any case, with white space around it or not (all ASCII). Stored is the first
spelling of each. The regular expressions are of RE2, and match whole texts. It imports no TensorFlow.
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
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d"
ISO_8601 = rf"\d{{4}}-\d\d-\d\d([T ]{_CLOCK}(:[0-5]\d(\.\d+)?)?(Z|[+-]{_CLOCK})?)?"
KINDS = {  # What a value has to be, by the type of its column.
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
    """The values of a column that stand for a missing one, given the texts that do; NaN, which equals nothing, is left out.

    Its dtype is `float32` (they are exactly what it holds), `int64` or `string`.
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
