"""YAML that says what is wrong in one line, and takes no key twice."""

from collections import Counter
from typing import Any

import yaml

from trainer.base.errors import UserError


class _Loader(yaml.SafeLoader):
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
