import base64
import html
import io
import re

import numpy as np
import pytest
import trips
import yaml
from dataset_files import convert_to, encode_image, write_files
from PIL import Image

from common.manifest import Manifest
from components.convert.output import PAGE
from components.convert.page import Histogram

EVIL = "<script>alert('x')</script>"
SCHEMA = yaml.safe_load(f"""
name: trips
origin: {EVIL}
columns:
  fare: {{type: float, unit: <b>USD</b>, default: 0.0}}
  extreme: {{type: float}}
  company: {{type: string}}
  row: {{type: int}}
label: {{condition: row % 2 = 1, classes: [a, {EVIL}]}}
deep:
- {{column: fare, numeric: z_score}}
- {{column: extreme, numeric: z_score}}
- {{column: company, vocabulary: 5}}
""")
COMPANIES = [EVIL, "Ünited & Söhne", "東京"]


@pytest.fixture
def page_of(tmp_path):
    """Converts with these options; returns the page, what it refers to, and its text."""

    def run(**options):
        convert_to(tmp_path / "out", shards=1, **options)
        page = (tmp_path / "out" / PAGE).read_text("utf-8")
        text = " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())
        assert not re.search(r"<(script|iframe|link)|url\(|@import|https?://|nan|inf", page)
        assert all(float(width) <= 100 for width in re.findall(r"width: ([\d.]+)%", page))
        return page, re.findall(r'(?:src|href)="([^"]*)"', page), text

    return run


@pytest.mark.parametrize(
    ("label", "part"),
    [
        (SCHEMA["label"], EVIL),
        ({"regression": {"row": "row", "twice": "2 * row"}}, "2 targets"),
        ({"multi_label": {"odd": "row % 2 = 1", EVIL: "row < 0"}}, f"{EVIL} 0 "),
    ],
)
def test_page_shows_features_as_text(page_of, tmp_path, label, part):
    rows = []
    for i in range(90):
        fare, company = i if i % 5 else "", COMPANIES[i % 3]
        rows.append({"fare": fare, "extreme": (-1) ** i * 1e38, "company": company, "row": i})
    source = trips.write(tmp_path, rows, {**SCHEMA, "label": label})
    page, addresses, text = page_of(**source, test_fraction=0.4)
    assert "<b>USD" not in page and addresses == [] and page.count("<svg") == 3
    parts = [*SCHEMA["columns"], *COMPANIES, part, "<b>USD</b>", "Jensen-Shannon", "Missing values"]
    for part in (*parts, Manifest.load(tmp_path / "out").fingerprint):
        assert part in text


def test_page_shows_colours(tmp_path, page_of):
    files = {}
    for i in range(30):
        image = Image.new("RGB", (90, 100), ("blue", "red")[i % 2])
        image.putpixel((0, 0), (i, i, i))  # Equal images would all go to one split.
        files[f"{i % 2}/{i}.png"] = encode_image(image)
    only_train = {"test_fraction": 0, "validation_fraction": 0}
    source = write_files(tmp_path / "source", files)
    _, addresses, text = page_of(dataset="images", source=source, encoding="source", **only_train)
    assert "only the training split has examples" in text
    for address, colour in ((addresses[0], (0, 0, 255)), (addresses[-1], (255, 0, 0))):
        image = Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))
        assert (image.size, image.getpixel((5, 5))) == ((45, 50), colour)


def test_drifts_are_zero_to_one():
    shares = np.array([[1, 0], [1, 0], [0, 1], [0.5, 0.5]])
    drifts = Histogram(name="fare", shares=shares).drifts
    assert drifts == pytest.approx([0, 1, 0.311278], abs=1e-6)
