"""The pages of real runs, promoted, rejected and failed, in headless Chromium with axe-core."""

import itertools
import json
import pathlib
import shutil

import pyarrow.parquet as pq
import pytest
import trips

from tests.programs import run_python

WIDTHS_PX, COLOURS = (1280, 390), ("light", "dark")
OWN_CHECKS = pathlib.Path(__file__).with_name("own_checks.js").read_text()


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


SMALL = ["--cluster=clusters/local.yaml", "--train-steps=300"]
OWN = ["--source=PLACE/rows.csv", "--schema=PLACE/schema.yaml", "--set=predict=PLACE/rows.csv"]
# Flags, exit code and verdict of each run.
RUNS = {
    "promoted": (["--dataset=csv", *OWN, *SMALL, "--set=slice=company"], 0, "promote"),
    "rejected": (["--dataset=digits", *SMALL, "--threshold=accuracy=1"], 0, "reject"),
    "failed": (["--dataset=digits", *SMALL, "--", "--learning-rate=1e9"], 2, None),
}


@pytest.fixture(scope="module", params=RUNS)
def pages(request, tmp_path_factory):
    """The pages of a real run and of its dataset."""
    flags, code, verdict = RUNS[request.param]
    place = tmp_path_factory.mktemp("today's")
    trips.write(place, trips.rows(3000))
    where = ["--runs-dir", place / "runs", "--registry", place / "registry"]
    flags = [flag.replace("PLACE", str(place)) for flag in flags]
    run_python("pipelines/run.py", *where, *flags, code=code)
    (path,) = place.glob("runs/*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["model"]["verdict"] == verdict
    if verdict == "promote":
        assert len(pq.read_table(summary["paths"]["predictions"])) == 3000
    return [path.with_name("report.html"), pathlib.Path(summary["paths"]["dataset_page"])]


@pytest.mark.pipeline
def test_pages_have_no_fault_in_browser(pages, browser):
    """Pages are right on screens and phones, in light and dark, and send no request."""
    from axe_playwright_python.sync_playwright import Axe

    faults = []
    urls = [page.as_uri() for page in pages]
    with browser.new_context(offline=True) as context:
        shown = context.new_page()
        shown.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
        shown.on("pageerror", lambda error: faults.append(f"error: {error}"))
        shown.on("request", lambda request: request.url in urls or faults.append(request.url))
        for url, width, colours in itertools.product(urls, WIDTHS_PX, COLOURS):
            shown.goto(url)
            shown.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
            shown.set_viewport_size({"width": width, "height": 900})
            shown.emulate_media(color_scheme=colours)
            view = shown.evaluate(OWN_CHECKS)
            for rule in Axe().run(shown).response["violations"]:
                view += [f"{rule['id']}: {' '.join(node['target'])}" for node in rule["nodes"]]
            faults += [f"{url}, {width} px, {colours}: {fault}" for fault in view]
    assert not faults, "\n".join(faults)
