"""The Jinja environment of everything that is written from a template: pages, cards and texts for a terminal.

templates("components.evaluate").get_template("page.html").render(title=title, body=body)
"""

import jinja2

from components.undefined import figure


def templates(package: str) -> jinja2.Environment:
    """The templates of a package, HTML or, by their name, plain text; what is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["figure"] = figure
    return made
