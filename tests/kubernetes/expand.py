"""Variables in commands and variables, and fields of pods, by the rules of Kubernetes."""

import re
from collections.abc import Mapping
from typing import Any


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Returns a text with `$(NAME)` replaced by the variable, and `$$` by `$`."""
    return re.sub(
        r"\$\$|\$\(([^)]+)\)",
        lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]),
        text,
    )


def field(body: Mapping[str, Any], path: str) -> str:
    """Returns a field of a pod, such as `metadata.name` or `metadata.annotations['key']`."""
    path, _, key = path.partition("['")
    for part in (*path.split("."), *filter(None, [key.removesuffix("']")])):
        body = body[part]
    return str(body)
