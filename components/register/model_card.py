"""`MODEL_CARD.md` of a version: what it is, how good on which records, why it is there, how to call it, and its limits.

model_card({"name": "mnist", "version": "3", **facts})

After Mitchell et al. 2019 (arXiv:1810.03993), as far as facts of a run say it. All of it is `version.json`'s; nothing is
judged or rounded differently here than in the evaluation's own summary.
"""

from collections.abc import Mapping
from typing import Any

from components.undefined import figure

_MOST_NAMES = 30
_ANSWERS = {
    "classification": "`probabilities` [N, classes], `class_index` [N] and `class_name` [N]",
    "multi_label": "`probabilities` [N, labels], each by itself",
    "regression": "`predictions` [N, targets]",
}
_TABLE = (
    "A value that is missing is sent as NaN, or as the dataset's schema says; it becomes the column's default, and is refused "
    "where there is none. "
)


def model_card(facts: Mapping[str, Any]) -> str:
    """The text, in Markdown, from what `version.json` has."""
    task, split, metrics = facts["task"], facts["split"], facts["metrics"]
    names, features = facts["class_names"] or facts["targets"], facts["features"]
    shown = [name for name in metrics if name != "examples"]
    table = [("", *shown), ("---",) * (len(shown) + 1)]
    for who, figures in (("this model", metrics), (facts["baseline"]["rule"], facts["baseline"])):
        table.append((who, *(figure(figures[name]) for name in shown)))
    lines = [
        f"# {facts['name']}, version {facts['version']}",
        f"A model for {task.replace('_', ' ')}, trained on `{facts['dataset']}`. Registered {facts['registered']}"
        + (f" by run `{facts['run']}`" if facts["run"] else "")
        + f", code `{facts['code_version']}`. Everything else that is known of it is in `version.json`.",
        "## How good it is",
        f"On {metrics['examples']:,} records of the split `{split}`, which it was not trained on:",
        "\n".join(_row(*cells) for cells in table),
        f"The verdict was **{facts['decision']['verdict']}**, by {facts['metric']}:",
        "\n".join(f"- {reason}" for reason in facts["decision"]["reasons"]),
        "## How to call it",
        f"TensorFlow alone loads it, and TensorFlow Serving takes its folder. `serving_default` takes {_inputs(features)} and "
        f"gives {_ANSWERS.get(task, 'its answers')}" + (f", in this order: {_listed(names)}." if names else "."),
        "## Limits",
        (_TABLE if any(form.endswith("[]") for form in features.values()) else "")
        + f"The figures are for records like those of the dataset with fingerprint `{facts['fingerprint'][:16]}`; of others they "
        "say nothing. "
        + ("Whatever it is sent, it answers with one of its classes. " if facts["class_names"] else "")
        + "Nobody has looked for groups of people whom it serves worse, unless that is said above.",
    ]
    return "\n\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _inputs(features: Mapping[str, str]) -> str:
    shapes = {name: form.replace("[", " [N, ").replace(", ]", "]") for name, form in features.items()}
    return ", ".join(f"`{name}` {form}" for name, form in shapes.items())


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST_NAMES]) + more
