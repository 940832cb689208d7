"""`MODEL_CARD.md` of a version: what it is, how good on which records, why it is there, how to call it, and its limits.

model_card({"name": "mnist", "version": "3", **facts})

After Mitchell et al. 2019 (arXiv:1810.03993), as far as facts of a run say it. All of it is `version.json`'s; nothing is
judged or rounded differently here than in the evaluation's own summary.
"""

from collections.abc import Mapping
from typing import Any

from common.pages import templates

_MOST_NAMES = 30
# In Markdown ends of lines count, also those behind a block.
_TEMPLATES = templates("components.register").overlay(trim_blocks=False, lstrip_blocks=False)
_TEMPLATES.filters["cell"] = lambda text: text.replace("|", "\\|")


def model_card(facts: Mapping[str, Any]) -> str:
    """The text, in Markdown, from what `version.json` has."""
    return _TEMPLATES.get_template("MODEL_CARD.md").render(facts, most_names=_MOST_NAMES) + "\n"
