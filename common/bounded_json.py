"""JSON that may be damaged or hostile: read in bounded time and memory, and every fault of it is a ValueError.

parse(b'{"step": 7}')                   # {"step": 7}
parse(b"[" * 200_000)                   # ValueError: its values are nested more than 100 deep
with open(path, "rb") as file:
    parse(read(file))                   # ValueError if the file has more than 128 MiB
"""

import json
import re
from typing import IO, Any

MOST_DEPTH = 100  # Of lists and objects in each other: Python's and Arrow's own parsers recurse.
MOST_BYTES = 128 << 20  # The largest, manifests of 100,000 files, have some 60 MB.
_MOST_DIGITS = 20  # Of a whole number: those of 64 bits. A longer one cannot become a float, or takes long to print.
# A last string without an end counts as one: its quotes would otherwise all be tried as beginnings.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))


def read(file: IO[bytes], most_bytes: int = MOST_BYTES) -> bytes:
    """Returns all of a file, which a ValueError says to be too large."""
    content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return content


def parse(text: bytes | str) -> Any:
    """Returns the value of a document."""
    content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if is_too_deep(content):
        raise ValueError(f"its values are nested more than {MOST_DEPTH} deep")
    return json.loads(text, parse_int=_parse_int)


def is_too_deep(text: bytes) -> bool:
    """Returns whether lists and objects are in each other more than `MOST_DEPTH` deep."""
    if text.count(b"[") + text.count(b"{") <= MOST_DEPTH:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", text).translate(None, _NO_BRACKET):
        depth += 1 if bracket in b"[{" else -1
        if depth > MOST_DEPTH:
            return True
    return False


def _parse_int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, more than {_MOST_DIGITS}")
    return int(digits)
