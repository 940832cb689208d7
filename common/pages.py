"""HTML pages and other texts that are made from templates, such as cards and texts for a terminal.

body = templates("components.evaluate").get_template("report.html").render(e=evaluation)
pathlib.Path("evaluation.html").write_text(render_page("Evaluation", body))
"""

from collections.abc import Sequence

import jinja2


def templates(package: str) -> jinja2.Environment:
    """Returns a Jinja environment with the templates in the folder `templates` of a package.

    Values are escaped in templates called `.html`, `.htm` or `.xml`, and not in others. It is an
    error to render an undefined variable. The filter `figure` writes a number with four decimals,
    and None as a dash.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        # Compiling the templates would take a tenth of the time of a small conversion.
        bytecode_cache=jinja2.FileSystemBytecodeCache(),
        autoescape=jinja2.select_autoescape(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["figure"] = figure
    return environment


def render_page(title: str, body: str) -> str:
    """Returns a complete HTML page, in one file without scripts.

    It can be read in light and dark mode, on a phone and on paper.

    Args:
      title: Title of the page, and its heading.
      body: HTML of the content; it is not escaped.
    """
    return templates("common").get_template("page.html").render(title=title, body=body)


def figure(value: float | None) -> str:
    """Returns a number with four decimals, or a dash for None."""
    return "-" if value is None else f"{value:.4f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of texts as lines with aligned columns, for a terminal.

    Raises:
      ValueError: If rows differ in length.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
