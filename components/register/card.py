"""The card of a version: what it is, what it takes, and how to ask it, as Markdown.

print(card(registry, "trips", registry.find("trips", "champion")))
"""

from common import provenance
from common.pages import templates
from components.register.registry import Registry, Version

# Cells that can be read, of columns without a default.
_EXAMPLES = {
    "float": "1.5",
    "int": "1",
    "time": "2024-01-31 08:15",
    "bool": "true",
    "string": "a text",
}


def card(registry: Registry, name: str, version: Version) -> str:
    """Returns the text. Its Python runs where TensorFlow is installed."""
    signatures, columns = provenance.taken_by(version.model_dir)
    cells = {
        column.name: _EXAMPLES[column.type] if column.default is None else str(column.default)
        for column in columns
    }
    template = templates("components.register").get_template("card.md")
    return template.render(
        name=name,
        version=version,
        facts=version.facts,
        registry=registry,
        signatures=signatures,
        columns=columns,
        cells=cells,
    )
