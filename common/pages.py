"""Pages, and what is written from a template: cards and texts for a terminal.

body = templates("components.evaluate").get_template("report.html").render(e=evaluation)
pathlib.Path("evaluation.html").write_text(render_page("Evaluation", body))
"""

from collections.abc import Sequence

import jinja2


def templates(package: str) -> jinja2.Environment:
    """Returns the templates of a package: HTML, or plain text by their names. An undefined variable is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        bytecode_cache=jinja2.FileSystemBytecodeCache(),  # To compile takes a tenth of a conversion.
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = figure
    return environment


def render_page(title: str, body: str) -> str:
    """Returns a page: one file without scripts, readable in light and dark, on a phone and on paper.

    Args:
      title: Title of the page, and its heading.
      body: HTML.
    """
    return templates("common").get_template("page.html").render(title=title, body=body)


def figure(value: float | None) -> str:
    """Returns a number with four decimals, and a dash for None."""
    return "-" if value is None else f"{value:.4f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of texts as lines with columns, for a terminal."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
