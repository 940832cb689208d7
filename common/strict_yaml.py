"""YAML that says what is wrong in one line, takes no key twice, and has bounds for what hostile files have without end."""

from collections import Counter
from typing import Any

import yaml

from common.errors import UserError

_MOST_DEPTH = 100  # Of lists and mappings in each other.
_MOST_NODES = 1_000_000  # With those that aliases repeat.


class _Loader(yaml.SafeLoader):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._depth = self._count = 0
        self._counts: dict[int, int] = {}  # Nodes below each one, with itself, by its id; aliases keep it alive.

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark
        is_alias = self.check_event(yaml.AliasEvent)
        before = self._count
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested more than {_MOST_DEPTH} deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._counts:
            raise yaml.MarkedYAMLError(problem="this alias is inside what it repeats", problem_mark=mark)
        self._count += self._counts[id(node)] if is_alias else 1
        if self._count > _MOST_NODES:
            raise yaml.MarkedYAMLError(problem=f"has more than {_MOST_NODES:,} values", problem_mark=mark)
        self._counts.setdefault(id(node), self._count - before)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        for key, times in keys.items():
            if times > 1:  # YAML keeps the last one, without a word.
                raise yaml.MarkedYAMLError(
                    problem=f"{key!r} stands there twice; remove one", problem_mark=node.start_mark
                )
        return super().construct_mapping(node, deep)


def parse(data: bytes) -> Any:
    """The single document in `data`, None if it is empty."""
    try:
        return yaml.load(data, _Loader)
    except Exception as error:  # Odd tags make PyYAML raise what it likes: KeyError for `!!bool x`.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or f"{type(error).__name__} {error}"
        raise UserError(f"not valid YAML{place}: {' '.join(what.split())}") from None
