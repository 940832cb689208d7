"""The frame of every page of ours: one file, no scripts, readable in light and dark, on a phone and on paper."""

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


TEMPLATES = templates("components.evaluate")


def render_page(title: str, body: str) -> str:
    """A whole page with that title, which is its heading too, and body, which is HTML."""
    return TEMPLATES.get_template("page.html").render(title=title, body=body)
