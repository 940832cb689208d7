"""Variables in commands and variables, by the rules of Kubernetes."""

import re
from collections.abc import Mapping


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Returns a text with `$(NAME)` replaced by the variable, and `$$` by `$`."""
    return re.sub(
        r"\$\$|\$\(([^)]+)\)",
        lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]),
        text,
    )
