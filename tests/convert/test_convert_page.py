import base64
import html.parser
import io
import re

import numpy as np
import pytest
import trips
from PIL import Image

from common.manifest import Manifest
from components.convert.__main__ import main
from components.convert.output import PAGE
from components.convert.page import SECONDS, Histogram, format_number

EVIL = "<script>alert('x')</script>"


class _Parsed(html.parser.HTMLParser):
    """The tags, addresses and text of a page; every tag has to be closed."""

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
def converted(tmp_path):
    """Converts a table, given as texts by column; returns manifest and page."""

    def run(columns: dict[str, list[str]], kinds: dict[str, dict], *flags: str):
        texts = [column for column, kind in kinds.items() if kind["type"] == "string"]
        numbers = [column for column, kind in kinds.items() if kind["type"] == "float"]
        schema = {
            "name": "trips",
            "origin": EVIL,
            "columns": {**kinds, "kind": {"type": "string"}},
            "label": {"column": "kind", "classes": ["a", EVIL]},
            "wide": [{"column": column, "hash_buckets": 5} for column in texts],
            "deep": [{"column": column, "numeric": "z_score"} for column in numbers],
        }
        values = zip(*columns.values(), strict=True)
        rows = [{**dict(zip(columns, row, strict=True)), "kind": ("a", EVIL)[i % 2]} for i, row in enumerate(values)]
        given = trips.write(tmp_path, rows, schema)
        out = tmp_path / "out"
        main([*(f"--{name}={value}" for name, value in given.items()), "--output", str(out), "--shards", "1", *flags])
        return Manifest.load(out), (out / PAGE).read_text(encoding="utf-8")

    return run


def test_page_shows_every_feature_as_text(converted):
    kinds = {"fare": {"type": "float", "unit": "<b>USD</b>", "default": 0.0}, "company": {"type": "string"}}
    fares = ["" if i % 5 == 0 else str(i) for i in range(90)]
    manifest, text = converted({"fare": fares, "company": [EVIL, "Ünited & Söhne", "東京"] * 30}, kinds)
    page = _Parsed(text)
    assert not {"script", "b>usd", "iframe", "link"} & set(page.tags)
    assert page.addresses == [] and not re.search(r"url\(|@import|https?://", text)
    for part in (*kinds, "label", EVIL, "<b>USD</b>", "Ünited & Söhne", "東京", "Jensen-Shannon"):
        assert part in page.text
    assert page.tags.count("svg") == 1 and "fingerprint" in page.text and manifest.fingerprint in page.text
    assert "Missing values" in page.text


def test_page_of_odd_columns(converted):
    columns = {
        "constant": ["2.5"] * 40,
        "extreme": ["1e38", "-1e38"] * 20,
        "nearly": ["0"] * 39 + ["1"],
        "missing": ["", "", "", "7"] * 10,
    }
    kinds = {name: {"type": "float", "default": -1.0} for name in columns}
    _, text = converted(columns, kinds, "--test-fraction=0.4")
    assert "nan" not in text and "inf" not in re.sub("L-infinity", "", text)
    assert all(name in _Parsed(text).text for name in columns)


def test_page_of_training_split_alone(converted):
    kinds = {"area": {"type": "int", "default": 0}, "company": {"type": "string", "default": ""}}
    _, text = converted({"area": [""] * 9, "company": [""] * 9}, kinds, "--test-fraction=0", "--validation-fraction=0")
    page = _Parsed(text)
    assert "only the training split has examples" in page.text
    assert "validation" not in [word.strip() for word in page.words]
    assert "100.0 %" in page.text and "missing" in page.text


def test_page_of_many_columns_is_bounded(converted):
    columns = {f"c{i}": [str(i), "2", "3"] for i in range(300)}
    _, text = converted(columns, {name: {"type": "float"} for name in columns}, "--test-fraction=0")
    assert "201 more columns are not shown" in text and len(text) < 1_000_000


@pytest.mark.parametrize("task", ["regression", "multi_label"])
def test_page_of_targets(tmp_path, task):
    targets = {
        "regression": {"fare": "fare", "twice": "2 * fare"},
        "multi_label": {"cheap": "fare < 2", "odd": "odd", EVIL: "fare < 0"},
    }[task]
    schema = {
        "name": "trips",
        "origin": "made up",
        "columns": {"fare": {"type": "float", "unit": "USD"}, "odd": {"type": "int"}, "hour": {"type": "int"}},
        "label": {task: targets},
        "wide": [{"column": "hour", "vocabulary": 24}],
    }
    flags = trips.write(tmp_path, [{"fare": i / 2, "odd": i % 2, "hour": i % 24} for i in range(200)], schema)
    main([*(f"--{name}={value}" for name, value in flags.items()), "--output", str(tmp_path / "out")])
    page = _Parsed((tmp_path / "out" / PAGE).read_text(encoding="utf-8"))
    assert "script" not in page.tags and "Classes" not in page.text
    train = Manifest.load(tmp_path / "out").splits["train"]
    if task == "regression":
        assert "2 targets" in page.text and "Labels" not in page.text
    else:
        assert "3 labels" in page.text and "Labels Examples of each label" in page.text
        for name, count in zip(targets, train.class_histogram, strict=True):
            assert f"{name} {count} " in page.text
        assert train.class_histogram[2] == 0 and "none" in page.text


def _images(page: _Parsed) -> list[np.ndarray]:
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))) for uri in page.addresses]


def test_page_shows_some_classes_of_many(tmp_path, make_idx):
    make_idx(tmp_path / "source", size=(100, 90), classes=256, train=300, test=9)
    main(["--dataset", "idx", "--source", str(tmp_path / "source"), "--output", str(tmp_path / "out")])
    text = (tmp_path / "out" / PAGE).read_text(encoding="utf-8")
    assert len(text) < 700_000 and "156 more" in _Parsed(text).text


def test_page_stretches_dim_pixels(tmp_path):
    main(["--output", str(tmp_path / "out")])
    page = _Parsed((tmp_path / "out" / PAGE).read_text(encoding="utf-8"))
    images = _images(page)
    assert "mean pixel value" in page.text
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert page.tags.count("figure") == 10 and 60 < len(images) <= 100
    assert all(image.shape == (8, 8) for image in images) and np.ptp(images) == 255


@pytest.mark.parametrize("encoding", ["raw", "source"])
def test_page_shows_image_files_in_colour(tmp_path, encoding):
    for i in range(30):
        path = tmp_path / "source" / ("red", "blue")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.new("RGB", (90, 100), path.parent.name)
        image.putpixel((0, 0), (i, i, i))  # Equal images would all go to one split.
        image.save(path)
    flags = ["--dataset", "images", "--source", str(tmp_path / "source"), "--encoding", encoding]
    main([*flags, "--output", str(tmp_path / "out")])
    page = _Parsed((tmp_path / "out" / PAGE).read_text(encoding="utf-8"))
    blue, *_, red = _images(page)
    assert blue[5, 5].tolist() == [0, 0, 255] and red[5, 5].tolist() == [255, 0, 0] and red.shape == (64, 58, 3)
    assert page.tags.count("figure") == 2


def test_page_counts_rare_categories_as_others(converted):
    kinds = {"company": {"type": "string"}, "fare": {"type": "float"}}
    columns = {"company": [f"c{i % 12}" for i in range(240)], "fare": [str(i) for i in range(240)]}
    _, text = converted(columns, kinds, "--test-fraction=0")
    assert re.search("all others 1[0-9][.][0-9] %", _Parsed(text).text)


def test_page_writes_dates_in_rows(converted):
    kinds = {"at": {"type": "int", "unit": SECONDS}, "company": {"type": "string"}}
    columns = {"at": [str(1_700_000_000 + i) for i in range(40)], "company": ["a"] * 40}
    _, text = converted(columns, kinds)
    rows = text[text.index("Sample rows") : text.index("Schema")]
    assert rows.count("<td>2023-11-14 22:1") == 8


def test_drifts_are_zero_to_one():
    shares = np.array([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    drifts = Histogram(name="fare", shares=shares).drifts
    assert drifts == pytest.approx([0, 1, 0.311278], abs=1e-6)


def test_format_number_writes_dates():
    assert format_number(1_700_000_000, SECONDS) == "2023-11-14 22:13:20"
    assert [format_number(v) for v in (None, 12345, 0.12345, 123456.7)] == ["–", "12,345", "0.1235", "123,457"]
