import base64
import html
import io
import itertools
import re

import numpy as np
import pytest
import trips
from dataset_files import convert_to, encode_image, write_files
from PIL import Image

from common.manifest import Manifest
from components.convert.output import PAGE
from components.convert.page import Histogram

EVIL = "<script>alert('x')</script>"


class Page:
    """Page of a dataset.

    Attributes:
      source: Its HTML.
      tags: Names of its elements.
      addresses: What it refers to.
      text: What a reader sees.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.tags = re.findall(r"<(\w+)", source)
        self.addresses = re.findall(r'(?:src|href)="([^"]*)"', source)
        self.text = " ".join(html.unescape(re.sub("<[^>]*>", " ", source)).split())


@pytest.fixture
def page_of(tmp_path):
    """Converts with these options; returns the page."""

    def run(**options) -> Page:
        convert_to(tmp_path / "out", shards=1, **options)
        return Page((tmp_path / "out" / PAGE).read_text(encoding="utf-8"))

    return run


@pytest.fixture
def page_of_table(tmp_path, page_of):
    """Converts a table of values by column and the row's number; returns the page."""

    def run(columns: dict[str, dict], values: dict[str, list], label=None, **options) -> Page:
        encodings = {"float": {"numeric": "z_score"}, "string": {"vocabulary": 5}}
        schema = {
            "name": "trips",
            "origin": EVIL,
            "columns": {**columns, "row": {"type": "int"}},
            "label": label or {"condition": "row % 2 = 1", "classes": ["a", EVIL]},
            "deep": [{"column": name, **encodings[c["type"]]} for name, c in columns.items()],
        }
        rows = zip(*values.values(), itertools.count())
        table = [dict(zip([*values, "row"], row, strict=True)) for row in rows]
        return page_of(**trips.write(tmp_path, table, schema), **options)

    return run


def test_page_shows_features_as_text(page_of_table, tmp_path):
    columns = {
        "fare": {"type": "float", "unit": "<b>USD</b>", "default": 0.0},
        "company": {"type": "string"},
    }
    fares = ["" if i % 5 == 0 else i for i in range(90)]
    companies = [EVIL, "Ünited & Söhne", "東京"]
    page = page_of_table(columns, {"fare": fares, "company": companies * 30})
    assert not {"script", "iframe", "link"} & {*page.tags} and "<b>USD" not in page.source
    assert page.addresses == [] and not re.search(r"url\(|@import|https?://", page.source)
    parts = [*columns, *companies, "label", "<b>USD</b>", "Jensen-Shannon", "Missing values"]
    for part in (*parts, Manifest.load(tmp_path / "out").fingerprint):
        assert part in page.text
    assert page.tags.count("svg") == 2


def test_page_of_odd_columns(page_of_table):
    values = {
        "constant": [2.5] * 40,
        "extreme": [1e38, -1e38] * 20,
        "missing": ["", "", "", 7] * 10,
    }
    columns = {name: {"type": "float", "default": -1.0} for name in values}
    page = page_of_table(columns, values, test_fraction=0.4)
    assert not re.search("nan|inf", page.source)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ({"regression": {"row": "row", "twice": "2 * row"}}, " 2 targets "),
        (
            {"multi_label": {"few": "row < 4", "odd": "row % 2 = 1", EVIL: "row < 0"}},
            f"few 4 .* odd 100 .*{re.escape(EVIL)} 0 ",
        ),
    ],
)
def test_page_of_targets(page_of_table, label, text):
    only_train = {"test_fraction": 0, "validation_fraction": 0}
    page = page_of_table({"x": {"type": "float"}}, {"x": range(200)}, label, **only_train)
    assert "script" not in page.tags and "Classes" not in page.text
    assert "only the training split has examples" in page.text
    assert re.search(text, page.text)


def test_page_shows_colours(tmp_path, page_of):
    files = {}
    for i in range(30):
        image = Image.new("RGB", (90, 100), ("red", "blue")[i % 2])
        image.putpixel((0, 0), (i, i, i))  # Equal images would all go to one split.
        files[f"{'rb'[i % 2]}/{i}.png"] = encode_image(image)
    source = write_files(tmp_path / "source", files)
    page = page_of(dataset="images", source=source, encoding="source")
    files = [base64.b64decode(address.split(",")[1]) for address in page.addresses]
    blue, *_, red = (np.asarray(Image.open(io.BytesIO(file))) for file in files)
    assert (*blue[5, 5], *red[5, 5]) == (0, 0, 255, 255, 0, 0) and red.shape == (64, 58, 3)


def test_drifts_are_zero_to_one():
    shares = np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    drifts = Histogram(name="fare", shares=shares).drifts
    assert drifts == pytest.approx([0, 1, 0.311278], abs=1e-6)
