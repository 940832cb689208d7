import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Encoding, Feature, Split
from components.convert.pieces import Source
from components.convert.report.tallies import Tallies
from components.convert.writing.byte_strings import Strings


class _Source(Source):
    """Says what it is, and is read by nobody."""

    def blocks(self, piece):
        raise AssertionError


_RANDOM, _N = np.random.default_rng(0), 300
_TABLE = _Source(
    name="trips",
    origin="made up",
    inputs=(
        Feature(name="fare", dtype="float32", default=0.0),
        Feature(name="hour", dtype="int64"),
        Feature(name="company", dtype="string"),
    ),
    class_names=("a", "b"),
    wide=(Encoding(kind="vocabulary", columns=("hour",), vocabulary=(1, 2)),),
)
_ROWS = {
    "fare": _RANDOM.gamma(2, 5, _N).astype(np.float32),
    "hour": _RANDOM.integers(0, 24, _N),
    "company": Strings.of([b"x%d" % i for i in _RANDOM.integers(0, 9, _N)]),
}
_IMAGE = Feature(name="image", dtype="uint8", shape=(5, 4, 3), value_range=(0.0, 255.0))
_PIXELS = {"image": _RANDOM.integers(0, 256, (_N, 5, 4, 3), np.uint8)}
_LABELS = {
    CLASSIFICATION: ({"class_names": ("a", "b")}, _RANDOM.integers(0, 2, _N)),
    REGRESSION: ({"targets": ("x",)}, _RANDOM.normal(0, 1, _N).astype(np.float32)),
    MULTI_LABEL: ({"targets": ("x", "y")}, _RANDOM.integers(0, 2, (_N, 2))),
}


def assert_close(found: dict[str, Split], expected: dict[str, Split]) -> None:
    """All is equal but for the last digits of means and deviations."""
    for name, split in expected.items():
        summaries = {}
        for feature, summary in found[name].summaries.items():
            other = split.summaries[feature]
            if other.mean is not None:
                assert (summary.mean, summary.std) == pytest.approx((other.mean, other.std), rel=1e-12)
            summaries[feature] = dataclasses.replace(summary, mean=other.mean, std=other.std)
        assert dataclasses.replace(found[name], summaries=summaries) == split


def _cases():
    for task, (names, labels) in _LABELS.items():
        source = _Source(name="pictures", origin="made up", inputs=(_IMAGE,), task=task, **names)
        yield pytest.param(source, {**_PIXELS, "label": labels}, {}, id=task)
    yield pytest.param(_TABLE, {**_ROWS, "label": _LABELS[CLASSIFICATION][1]}, {"fare": _ROWS["fare"] < 2}, id="table")


@pytest.mark.parametrize(("source", "columns", "missing"), _cases())
@given(data=st.data())
def test_whatever_the_pieces_and_blocks_and_whoever_merges_them_the_result_is_that_of_all_at_once(
    source, columns, missing, data
):
    splits = np.array(["train", "test", "validation"])[_RANDOM.integers(0, 3, _N)]

    def tallied(rows: np.ndarray) -> Tallies:
        found = Tallies(source)
        for split in ("test", "train", "validation"):
            if len(of_it := rows[splits[rows] == split]):
                parts = ({name: column[of_it] for name, column in each.items()} for each in (columns, missing))
                found.add(split, *parts, {})
        return found

    cuts = sorted(data.draw(st.lists(st.integers(0, _N), max_size=4)))
    pieces = [tallied(rows) for rows in np.split(np.arange(_N), cuts)]
    while len(pieces) > 1:
        i = data.draw(st.integers(0, len(pieces) - 2))
        pieces[i].absorb(json.loads(json.dumps(pieces.pop(i + 1).state())))
    whole, shown = tallied(np.arange(_N)), source.class_names or source.targets
    assert_close(pieces[0].describe(), whole.describe())
    assert {split: pieces[0].examples(split) for split in set(splits)} == {s: sum(splits == s) for s in set(splits)}
    if source is _TABLE:
        assert pieces[0].samples.table() == whole.samples.table() and len(whole.samples.table()) == 8
    else:
        assert pieces[0].samples.strips(shown) == whole.samples.strips(shown) != []
