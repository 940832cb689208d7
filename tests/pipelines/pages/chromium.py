"""What a reader's browser makes of a page: headless Chromium, with axe-core in it.

with opened() as chromium:
    assert faults(chromium, pathlib.Path("report.html")) == []
"""

import contextlib
import itertools
import pathlib
import shutil
import urllib.parse
from collections.abc import Iterator

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS_PX, COLOURS = (1280, 390), ("light", "dark")
AXE_VIEWS = (
    (1280, "light"),
    (390, "dark"),
)  # It takes seconds, and the contrast of all texts is looked at in every view.

# What axe-core does not look at; of contrast it leaves out texts of one character, and in drawings
# how they are filled.
OWN_CHECKS = """() => {
  const found = [], root = document.scrollingElement;
  if (root.scrollWidth > root.clientWidth) found.push(`scrolls sideways, as wide as ${root.scrollWidth} px`);
  if (document.scripts.length) found.push("has a script");
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  const twice = ids.filter((id, at) => ids.indexOf(id) < at);
  if (twice.length) found.push(`ids that are there twice: ${twice}`);
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (...colours) => {  // as WCAG 2.2 defines it, of colours one over the other
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
      part => part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const written = element => element.getClientRects().length &&
    [...element.childNodes].some(child => child.nodeType === 3 && child.data.trim());
  for (const text of [...document.querySelectorAll("body *")].filter(written)) {
    const under = [], style = getComputedStyle(text), size = parseFloat(style.fontSize);
    for (let at = text; at; at = at.parentElement) under.unshift(getComputedStyle(at).backgroundColor);
    const drawn = text.closest("svg"), colours = ["white", ...under];
    const back = light(...colours), front = light(...colours, drawn ? style.fill : style.color);
    const contrast = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
    const enough = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (contrast < enough) found.push(`contrast ${contrast.toFixed(2)} of "${text.textContent.trim().slice(0, 40)}"`);
  }
  return found;
}"""


@contextlib.contextmanager
def opened() -> Iterator:
    """The browser, as long as this lasts; without one the test is skipped."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no {NAMES[0]} on PATH")
    from playwright.sync_api import sync_playwright  # 1 s

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program) as chromium,
    ):
        yield chromium


def faults(chromium, page: pathlib.Path) -> list[str]:
    """What is wrong with a page on a screen and on a phone, in light and dark colours, a line each."""
    from axe_playwright_python.sync_playwright import Axe

    found = []
    with chromium.new_context(offline=True) as context:
        shown = context.new_page()
        shown.on("console", lambda message: found.append(f"console {message.type}: {message.text}"))
        shown.on("pageerror", lambda error: found.append(f"error: {error}"))
        shown.on(
            "request",
            lambda request: request.url == page.as_uri() or found.append(f"asks for {request.url}"),
        )
        shown.goto(page.as_uri())
        shown.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)")
        for width, colours in itertools.product(WIDTHS_PX, COLOURS):
            shown.set_viewport_size({"width": width, "height": 900})
            shown.emulate_media(color_scheme=colours)
            view = shown.evaluate(OWN_CHECKS)
            if (width, colours) in AXE_VIEWS:
                broken = Axe().run(shown).response["violations"]
                view += [
                    f"{rule['id']}: {' '.join(node['target'])}"
                    for rule in broken
                    for node in rule["nodes"]
                ]
            found += [f"{width} px, {colours}: {fault}" for fault in view]
        links = shown.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
    paths = [pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(link).path)) for link in links]
    return found + [f"leads nowhere: {path}" for path in paths if not path.exists()]
