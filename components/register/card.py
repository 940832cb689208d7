"""Card of a version as Markdown: what it is, what it takes, and how to ask it.

print(card(registry, "trips", registry.find("trips", "champion")))
"""

from common import provenance
from common.pages import templates
from components.register.registry import Registry, Version

# Example cells by type.
_EXAMPLES = {
    "float": "1.5",
    "int": "1",
    "time": "2024-01-31 08:15",
    "bool": "true",
    "string": "a text",
}


def card(registry: Registry, name: str, version: Version) -> str:
    """Returns the card of a version as Markdown.

    The Python code in it runs where TensorFlow is installed.

    Args:
      registry: The registry of the version.
      name: Name of the model.
      version: The version.

    Raises:
      UserError: If its files are gone or cannot be read.
      ConnectionError: If a store does not answer.
    """
    version.require_files(name)
    signatures, columns = provenance.taken_by(version.model_dir)
    cells = {column.name: _EXAMPLES[column.type or ""] for column in columns}
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
