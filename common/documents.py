r"""Readers of JSON and YAML that may be damaged or hostile, in bounded time and memory.

parse_json(b'{"step": 7}')              # {"step": 7}
parse_json(b"[" * 200_000)              # ValueError: its values are nested too deep
parse_yaml(b"a: 1\na: 2")               # UserError: not valid YAML at line 1, column 1: ...
line_of(b"a: 1\nb: [2]", "b[0]")        # 2
with open(path, "rb") as file:
    parse_json(read(file))              # ValueError if the file has more than 128 MiB
"""

import json
import re
from typing import IO, Any

import yaml
from yaml.composer import Composer

from common.errors import UserError

MOST_BYTES = 128 << 20  # The largest documents, manifests of 100,000 files, have some 60 MB.
# A whole number of 64 bits has no more digits than this. Much longer ones cannot become floats, or
# take long to print.
_MOST_DIGITS = 20


def read(file: IO[bytes], most_bytes: int = MOST_BYTES) -> bytes:
    """Returns the rest of a file.

    Raises:
      ValueError: If that is more than `most_bytes`.
    """
    content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return content


def parse_json(text: bytes | str) -> Any:
    """Returns the value of a JSON document.

    Raises:
      ValueError: If the document is not valid JSON (NaN and Infinity are read all the same), is
        nested too deep, or has a whole number of more than 20 characters.
    """
    try:
        return json.loads(text, parse_int=_parse_int)
    except RecursionError:
        raise ValueError("its values are nested too deep") from None


def _parse_int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, more than {_MOST_DIGITS}")
    return int(digits)


def plain(value: Any) -> Any:
    """Returns a value as it is after being written to JSON and read again.

    Numbers of other libraries, such as NumPy, become floats; numbers that are not finite become
    None; tuples become lists, and keys texts.

    Raises:
      TypeError: If a value is neither of JSON nor convertible to float.
    """
    return json.loads(json.dumps(value, default=float), parse_constant=lambda _: None)


def parse_yaml(data: bytes) -> Any:
    """Returns the value of the YAML document in `data`, or None if there is none.

    Raises:
      UserError: If `data` is not valid YAML, has several documents, repeats a key, or uses an
        alias. The message has the line and column where they are known.
    """
    try:
        return yaml.load(data, _Loader)
    except Exception as error:  # PyYAML lets other errors through: KeyError for `!!bool x`.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or f"{type(error).__name__} {error}"
        raise UserError(f"not valid YAML{place}: {' '.join(what.split())}") from None


def line_of(text: bytes, place: str) -> int | None:
    """Returns the line, counted from 1, of a value in a YAML text.

    Args:
      text: Text that `parse_yaml` accepts.
      place: Keys and indices that lead to the value, such as `deep[0].column`.

    Returns:
      The line of the value, or of its key if it has one. If there is no such value, the line of
      the innermost one around it; None if not even the first key or index of `place` exists.
    """
    node, line = yaml.compose(text, _Loader), None
    for step in re.findall(r"[^.\[\]]+", place):
        children = {}
        if isinstance(node, yaml.MappingNode):
            children = {
                key.value: (key, value)
                for key, value in node.value
                if isinstance(key, yaml.ScalarNode)
            }
        elif isinstance(node, yaml.SequenceNode):
            children = {str(i): (value, value) for i, value in enumerate(node.value)}
        if step not in children:
            break
        start, node = children[step]
        line = start.start_mark.line + 1
    return line


class _Loader(Composer, yaml.CSafeLoader):
    """Safe YAML loader that refuses aliases and repeated keys.

    It parses in C, five times as fast as PyYAML's own code. The nodes are composed in Python, where
    the checks below can be made.
    """

    def __init__(self, stream: bytes) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # A few aliases of aliases would expand to billions of values.
        if self.check_event(yaml.AliasEvent):
            problem = "aliases are not read; repeat the values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:  # PyYAML would silently keep the last value.
                problem = f"{key.value!r} stands there twice; remove one"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
            seen.add(key.value)
            # YAML 1.1 would read keys such as `yes` and `on` as True.
            if key.tag.endswith(":bool"):
                key.tag = self.DEFAULT_SCALAR_TAG
        return super().construct_mapping(node, deep)
