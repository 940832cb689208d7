import base64
import html.parser
import io
import pathlib
import re

import numpy as np
import pytest
import trips
from dataset_files import make_idx
from PIL import Image

from common.manifest import Manifest
from components.convert.__main__ import main
from components.convert.output import PAGE
from components.convert.page import SECONDS, Histogram, format_number

EVIL = "<script>alert('x')</script>"


class _Parsed(html.parser.HTMLParser):
    """Tags, addresses and text of a page; every tag has to be closed."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.addresses, self.words, self._open = [], [], [], []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "img", "path"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def page_of(tmp_path):
    """Converts a table of texts by column; returns the page."""

    def run(columns: dict[str, list[str]], kinds: dict[str, dict], *flags: str) -> str:
        encodings = {
            "string": {"hash_buckets": 5},
            "float": {"numeric": "z_score"},
            "int": {"vocabulary": 5},
        }
        schema = {
            "name": "trips",
            "origin": EVIL,
            "columns": {**kinds, "kind": {"type": "string"}},
            "label": {"column": "kind", "classes": ["a", EVIL]},
            "deep": [
                {"column": column, **encodings[kind["type"]]} for column, kind in kinds.items()
            ],
        }
        values = zip(*columns.values(), strict=True)
        rows = [
            {**dict(zip(columns, row, strict=True)), "kind": ("a", EVIL)[i % 2]}
            for i, row in enumerate(values)
        ]
        return convert(tmp_path, trips.write(tmp_path, rows, schema), *flags)

    return run


def convert(directory: pathlib.Path, options: dict[str, object], *flags: str) -> str:
    """Converts, and returns the page."""
    source = [f"--{name}={value}" for name, value in options.items()]
    main([*source, "--output", str(directory / "out"), "--shards", "1", *flags])
    return (directory / "out" / PAGE).read_text(encoding="utf-8")


def test_page_shows_features_as_text(page_of, tmp_path):
    kinds = {
        "fare": {"type": "float", "unit": "<b>USD</b>", "default": 0.0},
        "company": {"type": "string"},
    }
    fares = ["" if i % 5 == 0 else str(i) for i in range(90)]
    text = page_of({"fare": fares, "company": [EVIL, "Ünited & Söhne", "東京"] * 30}, kinds)
    page = _Parsed(text)
    assert not {"script", "b>usd", "iframe", "link"} & set(page.tags)
    assert page.addresses == [] and not re.search(r"url\(|@import|https?://", text)
    parts = (
        *kinds,
        "label",
        EVIL,
        "<b>USD</b>",
        "Ünited & Söhne",
        "東京",
        "Jensen-Shannon",
        "Missing values",
    )
    for part in (*parts, "fingerprint", Manifest.load(tmp_path / "out").fingerprint):
        assert part in page.text
    assert page.tags.count("svg") == 1


def test_page_of_odd_columns(page_of):
    columns = {
        "constant": ["2.5"] * 40,
        "extreme": ["1e38", "-1e38"] * 20,
        "nearly": ["0"] * 39 + ["1"],
        "missing": ["", "", "", "7"] * 10,
    }
    text = page_of(
        columns,
        {name: {"type": "float", "default": -1.0} for name in columns},
        "--test-fraction=0.4",
    )
    assert "nan" not in text and "inf" not in text
    assert all(name in _Parsed(text).text for name in columns)


def test_page_of_training_split_alone(page_of):
    kinds = {"area": {"type": "int", "default": 0}, "company": {"type": "string", "default": ""}}
    flags = ("--test-fraction=0", "--validation-fraction=0")
    page = _Parsed(page_of({"area": [""] * 9, "company": [""] * 9}, kinds, *flags))
    assert "only the training split has examples" in page.text
    assert "validation" not in [word.strip() for word in page.words]
    assert "100.0 %" in page.text and "missing" in page.text


def test_page_of_many_columns_is_bounded(page_of):
    columns = {f"c{i}": [str(i), "2", "3"] for i in range(300)}
    text = page_of(columns, {name: {"type": "float"} for name in columns}, "--test-fraction=0")
    assert "201 more columns are not shown" in text and len(text) < 1_000_000


@pytest.mark.parametrize(
    ("label", "texts"),
    [
        ({"regression": {"fare": "fare", "twice": "2 * fare"}}, ["2 targets"]),
        (
            {"multi_label": {"cheap": "fare < 2", "odd": "odd", EVIL: "fare < 0"}},
            [
                "3 labels",
                "Labels Examples of each label",
                "cheap 4 ",
                "odd 100 ",
                f"{EVIL} 0 ",
                "none",
            ],
        ),
    ],
)
def test_page_of_targets(tmp_path, label, texts):
    schema = {
        "name": "trips",
        "origin": "made up",
        "columns": {
            "fare": {"type": "float", "unit": "USD"},
            "odd": {"type": "int"},
            "hour": {"type": "int"},
        },
        "label": label,
        "wide": [{"column": "hour", "vocabulary": 24}],
    }
    options = trips.write(
        tmp_path, [{"fare": i / 2, "odd": i % 2, "hour": i % 24} for i in range(200)], schema
    )
    page = _Parsed(convert(tmp_path, options, "--test-fraction=0", "--validation-fraction=0"))
    assert "script" not in page.tags and "Classes" not in page.text
    assert all(text in page.text for text in texts) and ("Labels" in page.text) == (
        "multi_label" in label
    )


def _images(page: _Parsed) -> list[np.ndarray]:
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))))
        for uri in page.addresses
    ]


def test_page_shows_some_classes_of_many(tmp_path):
    make_idx(tmp_path / "source", size=(100, 90), classes=256, train=300, test=9)
    text = convert(tmp_path, {"dataset": "idx", "source": tmp_path / "source"})
    assert len(text) < 700_000 and "156 more" in _Parsed(text).text


def test_page_stretches_dim_pixels(tmp_path):
    page = _Parsed(convert(tmp_path, {"dataset": "digits"}))
    images = _images(page)
    assert "mean pixel value" in page.text
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert page.tags.count("figure") == 10 and 60 < len(images) <= 100
    assert all(image.shape == (8, 8) for image in images) and np.ptp(images) == 255


@pytest.mark.parametrize("encoding", ["raw", "source"])
def test_page_shows_colours(tmp_path, encoding):
    for i in range(30):
        path = tmp_path / "source" / ("red", "blue")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (90, 100), path.parent.name)
        image.putpixel((0, 0), (i, i, i))  # Equal images would all go to one split.
        image.save(path)
    options = {"dataset": "images", "source": tmp_path / "source", "encoding": encoding}
    page = _Parsed(convert(tmp_path, options))
    blue, *_, red = _images(page)
    assert (
        blue[5, 5].tolist() == [0, 0, 255]
        and red[5, 5].tolist() == [255, 0, 0]
        and red.shape == (64, 58, 3)
    )
    assert page.tags.count("figure") == 2


def test_page_shows_rare_categories_and_dates(page_of):
    kinds = {"company": {"type": "string"}, "at": {"type": "int", "unit": SECONDS}}
    columns = {
        "company": [f"c{i % 12}" for i in range(240)],
        "at": [str(1_700_000_000 + i % 40) for i in range(240)],
    }
    text = page_of(columns, kinds, "--test-fraction=0")
    assert re.search("all others 1[0-9][.][0-9] %", _Parsed(text).text)
    rows = text[text.index("Sample rows") : text.index("Schema")]
    assert rows.count("<td>2023-11-14 22:1") == 8


def test_drifts_are_zero_to_one():
    shares = np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    drifts = Histogram(name="fare", shares=shares).drifts
    assert drifts == pytest.approx([0, 1, 0.311278], abs=1e-6)


def test_format_number():
    assert format_number(1_700_000_000, SECONDS) == "2023-11-14 22:13:20"
    assert [format_number(v) for v in (None, 12345, 0.12345, 123456.7)] == [
        "–",
        "12,345",
        "0.1235",
        "123,457",
    ]
