"""The pages in Chromium: of real runs, promoted, rejected and failed."""

import json
import pathlib
import re
from concurrent.futures import ThreadPoolExecutor

import chromium
import pytest
import trips

from components.evaluate.report import render_page

DATA = pathlib.Path(__file__).parents[4] / "shared" / "data"
MNIST = ("mnist", "--source", DATA / "mnist", "--train-steps", 40)
TAXI = ("taxi", "--source", DATA / "taxi" / "data.csv", "--set", "slice=payment_type")
GOOD = (
    '<p>It is <a href="#">good</a>.</p><svg viewBox="0 0 9 9"><text '
    'fill="currentColor">9</text></svg>'
)

FAULTS = {
    '<p style="color: #888; background: #999" id="pale">pale</p>': "1280 px, light: "
    "color-contrast: #pale",
    '<p style="color: #1c2430" id="night">dark</p>': "390 px, dark: color-contrast: #night",
    '<p style="color: #777">1</p>': '390 px, light: contrast 4.48 of "1"',
    '<svg><text style="fill: #777">7</text></svg>': '1280 px, light: contrast 4.48 of "7"',
    '<img src="https://example.org/a.png" alt="a">': "asks for https://example.org/a.png",
    '<img src="data:,">': "image-alt",
    "<script>console.warn('hm')</script>": "console warning: hm",
    "<script>nothing.at.all</script>": "error: nothing is not defined",
    '<div style="width: 500px">wide</div>': "390 px, light: scrolls sideways, as wide as 5",
    "<h4>skips</h4>": "heading-order",
    '<i id="a"></i><i id="a"></i>': "ids that are there twice: a",
    '<a href="nowhere.html">n</a>': "leads nowhere: ",
    '</main><p id="outside">7</p>': "region: #outside",
}


@pytest.fixture(scope="module")
def browser():
    with chromium.opened() as opened:
        yield opened


@pytest.mark.cluster
def test_a_fault_of_a_page_is_noticed_and_a_page_without_has_none(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(render_page("Page", GOOD), encoding="utf-8")
    assert chromium.faults(browser, page) == []
    page.write_text(render_page("Page", GOOD + "".join(FAULTS)), encoding="utf-8")
    found = "\n".join(chromium.faults(browser, page))
    assert [told for told in FAULTS.values() if told not in found] == [], found


@pytest.fixture(scope="module")
def pages(command, tmp_path_factory) -> dict[str, pathlib.Path]:
    """The pages of real runs: one was promoted, one rejected, and one failed in mid-training."""
    place = tmp_path_factory.mktemp("place")
    runs = place / "runs"
    trips.write(place)
    own = (
        "csv",
        "--source",
        place / "rows.csv",
        "--schema",
        place / "schema.yaml",
        "--set",
        "slice=company",
    )
    small = ("--cluster", "clusters/local.yaml", "--train-steps", 300)
    asked = {
        "promoted": (
            *(MNIST if DATA.exists() else ("digits",)),
            "--cluster",
            "clusters/local-sync.yaml",
        ),
        "rejected": (*(TAXI if DATA.exists() else own), *small, "--threshold", "auc=1"),
        "failed": ("digits", *small, "--", "--learning-rate", "1e9"),
    }

    def run(kind: str) -> str:
        done = command(
            "pipelines/run.py",
            "--runs-dir",
            runs,
            "--registry",
            place / "registry",
            "--dataset",
            *asked[kind],
        )
        assert (done.returncode != 0) == (kind == "failed"), done.stdout + done.stderr
        return re.match(r"run (\S+):", done.stdout)[1]

    with ThreadPoolExecutor(2) as pool:
        made = dict(zip(asked, pool.map(run, asked), strict=True))
    found = {kind: runs / name / "report.html" for kind, name in made.items()}
    for kind, page in list(found.items()):
        summary = json.loads(page.with_name("summary.json").read_text())
        assert (summary["status"], summary["model"]["verdict"]) == EXPECTED[kind]
        found[f"data of {kind}"] = pathlib.Path(summary["paths"]["dataset_page"])
    return found


EXPECTED = {
    "promoted": ("succeeded", "promote"),
    "rejected": ("succeeded", "reject"),
    "failed": ("failed", None),
}


@pytest.mark.pipeline
@pytest.mark.parametrize("page", [*EXPECTED, *(f"data of {kind}" for kind in EXPECTED)])
def test_a_page_has_no_fault_on_a_screen_or_a_phone_in_light_or_dark_colours(browser, pages, page):
    found = chromium.faults(browser, pages[page])
    assert not found, "\n".join(found)
