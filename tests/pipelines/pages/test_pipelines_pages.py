"""The pages of real runs, promoted, rejected and failed, in headless Chromium with axe-core."""

import itertools
import json
import pathlib
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import trips

WIDTHS_PX, COLOURS = (1280, 390), ("light", "dark")
# What axe-core does not look at; of contrast it leaves out texts of one character, and in drawings
# how they are filled.
OWN_CHECKS = """() => {
  const found = [], root = document.scrollingElement;
  if (root.scrollWidth > root.clientWidth) found.push(`is as wide as ${root.scrollWidth} px`);
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
    for (let at = text; at; at = at.parentElement)
      under.unshift(getComputedStyle(at).backgroundColor);
    const drawn = text.closest("svg"), colours = ["white", ...under];
    const back = light(...colours), front = light(...colours, drawn ? style.fill : style.color);
    const contrast = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
    const enough = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const start = text.textContent.trim().slice(0, 40);
    if (contrast < enough) found.push(`contrast ${contrast.toFixed(2)} of "${start}"`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium on PATH")
    from playwright.sync_api import sync_playwright  # 1 s

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program) as browser,
    ):
        yield browser


SMALL = ("--cluster", "clusters/local.yaml", "--train-steps", 300)
# Flags, exit code and verdict of each run.
RUNS = {
    "promoted": (("--dataset=digits", "--cluster=clusters/local-sync.yaml"), 0, "promote"),
    "rejected": (("--dataset=csv", "--threshold=auc=1", "--set=slice=company"), 0, "reject"),
    "failed": (("--dataset=digits", *SMALL, "--", "--learning-rate", "1e9"), 2, None),
}


@pytest.fixture(scope="module")
def pages(command, tmp_path_factory) -> dict[str, pathlib.Path]:
    """The pages of real runs: one was promoted, one rejected, and one failed in mid-training."""
    place = tmp_path_factory.mktemp("place")
    source = trips.write(place)
    runs = place / "runs"

    def run(kind: str) -> pathlib.Path:
        flags, code, verdict = RUNS[kind]
        if kind == "rejected":
            flags = (*flags, "--source", source["source"], "--schema", source["schema"], *SMALL)
        where = ("--runs-dir", runs, "--registry", place / "registry")
        done = command("pipelines/run.py", *where, *flags, code=code)
        page = runs / re.match(r"run (\S+):", done.stdout)[1] / "report.html"
        assert json.loads(page.with_name("summary.json").read_text())["model"]["verdict"] == verdict
        return page

    with ThreadPoolExecutor(2) as pool:
        made = dict(zip(RUNS, pool.map(run, RUNS), strict=True))
    for kind, page in list(made.items()):
        summary = json.loads(page.with_name("summary.json").read_text())
        made[f"data of {kind}"] = pathlib.Path(summary["paths"]["dataset_page"])
    return made


@pytest.mark.pipeline
@pytest.mark.parametrize("page", [*RUNS, *(f"data of {kind}" for kind in RUNS)])
def test_page_has_no_fault_in_browser(browser, pages, page):
    """On a screen and on a phone, in light and dark colours, and without asking for anything."""
    from axe_playwright_python.sync_playwright import Axe

    faults = []
    url = pages[page].as_uri()
    with browser.new_context(offline=True) as context:
        shown = context.new_page()
        shown.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        shown.on("pageerror", lambda error: faults.append(f"error: {error}"))
        shown.on("request", lambda request: request.url == url or faults.append(request.url))
        shown.goto(url)
        shown.evaluate("document.querySelectorAll('details').forEach(folded => folded.open = true)")
        for width, colours in itertools.product(WIDTHS_PX, COLOURS):
            shown.set_viewport_size({"width": width, "height": 900})
            shown.emulate_media(color_scheme=colours)
            view = shown.evaluate(OWN_CHECKS)
            for rule in Axe().run(shown).response["violations"]:
                view += [f"{rule['id']}: {' '.join(node['target'])}" for node in rule["nodes"]]
            faults += [f"{width} px, {colours}: {fault}" for fault in view]
    assert not faults, "\n".join(faults)
