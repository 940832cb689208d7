import re

import kinds
import numpy as np
import pytest
import trips
import yaml
from dataset_files import convert_to, read_split

from components.convert.output import PAGE
from tests.errors import user_error

SCHEMA = yaml.safe_load("""
name: trips
origin: made up
columns: {fare: {type: float, default: -1.0}, row: {type: int}}
label: {condition: row % 2 = 1, classes: [a, b]}
deep: [{column: fare, numeric: z_score}]
""")
FARES = np.random.default_rng(0).gamma(2, 5, 300).astype(np.float32)


LABELS = {"odd": "row % 2 = 1", "early": "row < 99"}


def convert_fares(directory, fares, label=SCHEMA["label"]):
    """Converts a table with these fares and the number of the row."""
    rows = [{"fare": fare, "row": i} for i, fare in enumerate(fares)]
    source = trips.write(directory, rows, {**SCHEMA, "label": label})
    return convert_to(directory / "out", **source, shards=2)


@pytest.mark.parametrize("label", [SCHEMA["label"], {"multi_label": LABELS}])
def test_summaries_are_of_all_values(tmp_path, label):
    manifest = convert_fares(tmp_path, ["" if fare < 5 else fare for fare in FARES], label)
    for split, described in manifest.splits.items():
        records = read_split(tmp_path / "out", split)
        fares = np.array([row["fare"] for row in records if row["fare"] != -1])
        summary = described.summaries["fare"]
        assert summary.missing == len(records) - len(fares) > 0
        assert (summary.min, summary.max) == (fares.min(), fares.max())
        assert (summary.mean, summary.std) == pytest.approx((fares.mean(), fares.std()), rel=1e-12)
        labels = np.array([row["label"] for row in records])
        counts = np.bincount(labels) if labels.ndim == 1 else labels.sum(axis=0)
        assert described.class_histogram == tuple(counts)


def test_normalised_column_needs_values(tmp_path):
    with user_error("'fare' has no values in the training split"):
        convert_fares(tmp_path, [""] * 9)


@pytest.mark.parametrize("kind", ["idx", "images", "csv"])
@pytest.mark.long
def test_pieces_change_no_figure(tmp_path, kind):
    """The page has the same figures, and the same samples of many records, for any pieces."""
    source, pages = kinds.make(kind, tmp_path), set()
    for shards in (1, 4, 30):
        out = tmp_path / str(shards)
        convert_to(out, **source, shards=shards)
        pages.add(re.sub(r"bytes in \d+ files|\w{64}", "", (out / PAGE).read_text("utf-8")))
    assert len(pages) == 1
