"""The frame of every page of ours: one file, no scripts, readable in light and dark, on a phone and on paper."""

from components.templates import templates

TEMPLATES = templates("components.evaluate")


def render_page(title: str, body: str) -> str:
    """A whole page with that title, which is its heading too, and body, which is HTML."""
    return TEMPLATES.get_template("page.html").render(title=title, body=body)
