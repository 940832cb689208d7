"""Plots in the house style, as SVG inside a page: in its colours, light and dark, and in words for who does not see them.

def draw(figure):
    figure.add_subplot().plot([1, 2], [0.9, 0.4], color=plots.FIRST)

plots.plot("Loss", "It falls from 0.9 to 0.4 in 2 steps.", draw)
"""

import io
import pathlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Any

import markupsafe
import numpy as np

# Matplotlib wants colours that it knows; each of these, which the style has too, becomes one of the page's.
_PAGE = ("var(--ink)", "var(--soft)", "var(--line)", "rgb(var(--hit))", "rgb(var(--second))", "rgb(var(--third))")
VARIABLES = {f"#00000{i}": variable for i, variable in enumerate(_PAGE, 1)}
_, SOFT, _, FIRST, SECOND, _ = VARIABLES
_STYLE = pathlib.Path(__file__).parents[1] / "templates" / "plots.mplstyle"
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_MOST = 300  # points of a line: more than there is room for
_SIZE = 3.8, 2.3  # of a figure, in inches at the page's own scale


def plot(title: str, told: str, draw: Callable[[Any], object]) -> markupsafe.Markup:
    """What `draw` draws on an empty figure, under its title.

    `told` has the figures in words. On one page every title is another one.
    """
    import matplotlib  # takes half a second, which only who writes a page has
    from matplotlib.figure import Figure

    # The names of what is drawn twice follow from the salt: two plots on one page must not use each other's.
    style = matplotlib.rc_params_from_file(_STYLE, use_default_template=False)
    with matplotlib.rc_context({**style, "svg.hashsalt": title}):
        figure, written = Figure(figsize=_SIZE), io.StringIO()
        # The same margins for all: to find the least takes as long again as to draw.
        figure.subplots_adjust(left=0.16, right=0.97, top=0.91, bottom=0.2)
        draw(figure)
        figure.savefig(written, format="svg", metadata={"Date": None})
    shown = markupsafe.Markup(_inline(written.getvalue(), told))
    return markupsafe.Markup('<figure class="chart"><figcaption>{}</figcaption>{}</figure>').format(title, shown)


def thinned(xs: Sequence[float], ys: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """A line of at most 300 points: of more, the means of as many runs of neighbours."""
    parts = min(len(xs), _MOST)
    means = [
        [part.mean() for part in np.array_split(np.asarray(each, float), parts)] if parts else [] for each in (xs, ys)
    ]
    return np.array(means[0]), np.array(means[1])


def _inline(text: str, told: str) -> str:
    """A file of SVG as an element of a page."""
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _LINK)
    root = ET.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            # A style would be for the whole page.
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
        if parent.tag == f"{{{_SVG}}}g":  # nothing refers to these, and every plot has the same
            parent.attrib.pop("id", None)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    title = ET.Element(f"{{{_SVG}}}title")
    title.text = told
    root.insert(0, title)
    # Texts are in the page's font.
    inline = re.sub(r"\n *| font-family: [^;]*;", "", ET.tostring(root, encoding="unicode"))
    return re.sub("|".join(VARIABLES), lambda found: VARIABLES[found[0]], inline)
