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
from components.convert.writing.output import PAGE

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


def test_it_shows_every_feature_and_runs_no_text_as_markup(converted):
    kinds = {"fare": {"type": "float", "unit": "<b>USD</b>", "default": 0.0}, "company": {"type": "string"}}
    fares = ["" if i % 5 == 0 else str(i) for i in range(90)]
    manifest, text = converted({"fare": fares, "company": [EVIL, "Ünited & Söhne", "東京"] * 30}, kinds)
    page = _Parsed(text)
    assert not {"script", "b>usd", "iframe", "link"} & set(page.tags)
    assert page.addresses == [] and not re.search(r"url\(|@import|https?://", text)
    for part in (*kinds, "label", EVIL, "<b>USD</b>", "Ünited & Söhne", "東京", "Jensen-Shannon", "L-infinity"):
        assert part in page.text
    assert page.tags.count("svg") == 1 and "fingerprint" in page.text and manifest.fingerprint in page.text
    assert "Missing values" in page.text and "20.0 %" in page.text


def test_odd_columns(converted):
    columns = {
        "constant": ["2.5"] * 40,
        "extreme": ["1e38", "-1e38"] * 20,
        "nearly": ["0"] * 39 + ["1"],
        "missing": ["", "", "", "7"] * 10,
    }
    kinds = {name: {"type": "float", "default": -1.0} for name in columns}
    manifest, text = converted(columns, kinds, "--test-fraction=0.4")
    assert "nan" not in text and "inf" not in re.sub("L-infinity", "", text)
    for name in columns:
        assert name in _Parsed(text).text and manifest.splits["train"].summaries[name].histogram


def test_nothing_but_a_training_split(converted):
    kinds = {"area": {"type": "int", "default": 0}, "company": {"type": "string", "default": ""}}
    _, text = converted({"area": [""] * 9, "company": [""] * 9}, kinds, "--test-fraction=0", "--validation-fraction=0")
    page = _Parsed(text)
    assert "only the training split has examples" in page.text and "no values in the training split" in page.text
    assert "validation" not in [word for word in page.words if word.strip() == "validation"]
    assert "100.0 %" in page.text and "empty" in page.text


@pytest.mark.parametrize("task", ["regression", "multi_label"])
def test_targets_are_shown_as_numbers_and_labels_by_their_shares(tmp_path, task):
    targets = {
        "regression": {"fare": "fare", "twice": {"times": [2, "fare"]}},
        "multi_label": {"cheap": {"less": ["fare", 2]}, "odd": "odd", EVIL: {"less": ["fare", 0]}},
    }[task]
    schema = {
        "name": "trips",
        "origin": "made up",
        "columns": {"fare": {"type": "float", "unit": "USD"}, "odd": {"type": "int"}, "hour": {"type": "int"}},
        "label": {task: targets},
        "wide": [{"column": "hour", "vocabulary": 24}],
    }
    given = trips.write(tmp_path, [{"fare": i / 2, "odd": i % 2, "hour": i % 24} for i in range(200)], schema)
    out = tmp_path / "out"
    main([*(f"--{name}={value}" for name, value in given.items()), "--output", str(out), "--shards", "1"])
    page = _Parsed((out / PAGE).read_text(encoding="utf-8"))
    assert "script" not in page.tags and "Classes" not in page.text
    train = Manifest.load(out).splits["train"]
    if task == "regression":
        assert "2 targets" in page.text and "label.fare USD" in page.text and "label.twice" in page.text
        assert f"train {train.summaries['label.twice'].mean:.4g}" in page.text and "Jensen-Shannon" in page.text
        assert "Labels" not in page.text and re.search(r"label\.twice Jensen-Shannon", page.text)
    else:
        assert "3 labels" in page.text and "Labels Examples of each label" in page.text
        for name, count in zip(targets, train.class_histogram, strict=True):
            assert f"{name} {count} " in page.text and re.search(rf"label\.{re.escape(name)} L-infinity", page.text)
        assert train.class_histogram[2] == 0 and "cheap, odd" in page.text and "none" in page.text


def _images(page: _Parsed) -> list[np.ndarray]:
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))) for uri in page.addresses]


def test_as_many_classes_as_fit_are_shown(tmp_path, make_idx):
    make_idx(tmp_path / "source", size=(100, 90), classes=256, train=300, test=9)
    main(["--dataset", "idx", "--source", str(tmp_path / "source"), "--output", str(tmp_path / "out")])
    text = (tmp_path / "out" / PAGE).read_text(encoding="utf-8")
    assert len(text) < 400_000 and "156 more" in _Parsed(text).text


def test_dim_pixels_are_shown_bright(tmp_path):
    main(["--output", str(tmp_path / "out"), "--shards", "1"])
    page = _Parsed((tmp_path / "out" / PAGE).read_text(encoding="utf-8"))
    strips = _images(page)
    assert "mean pixel value" in page.text
    assert all(address.startswith("data:image/png;base64,") for address in page.addresses)
    assert [strip.shape for strip in strips] == [(8, 10 * 9 - 1)] * 10
    assert all(strip.max() == 255 and strip.min() == 0 for strip in strips)


@pytest.mark.parametrize("encoding", ["raw", "source"])
def test_image_files_are_shown_in_colour(tmp_path, encoding):
    for i in range(30):
        path = tmp_path / "source" / ("red", "blue")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (90, 100), path.parent.name).save(path)
    flags = ["--dataset", "images", "--source", str(tmp_path / "source"), "--encoding", encoding, "--shards", "1"]
    main([*flags, "--output", str(tmp_path / "out")])
    blue, red = _images(_Parsed((tmp_path / "out" / PAGE).read_text(encoding="utf-8")))
    assert blue[5, 5].tolist() == [0, 0, 255] and red[5, 5].tolist() == [255, 0, 0] and red.shape[0] == 64
