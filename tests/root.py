"""Directory of the project, and the code on its pages."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]


def blocks(page, language="python"):
    """Returns the blocks of code of a page of `docs`."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
