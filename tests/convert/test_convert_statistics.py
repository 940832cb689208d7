import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Encoding, Feature, Split
from components.convert.hashes import splitmix64
from components.convert.records import take
from components.convert.source import Examples
from components.convert.statistics import Sample, Statistics


class _Examples(Examples):
    """Examples that are described, and not read."""

    def blocks(self, piece):
        raise AssertionError


_RANDOM, _N = np.random.default_rng(0), 300
_TABLE = _Examples(
    name="trips",
    origin="made up",
    pieces=(),
    inputs=(
        Feature(name="fare", dtype="float32", default=0.0),
        Feature(name="hour", dtype="int64"),
        Feature(name="company", dtype="string"),
    ),
    class_names=("a", "b"),
)
_ROWS = {
    "fare": _RANDOM.gamma(2, 5, _N).astype(np.float32),
    "hour": _RANDOM.integers(0, 24, _N),
    "company": pa.array([b"x%d" % i for i in _RANDOM.integers(0, 9, _N)], pa.large_binary()),
}
_IMAGE = Feature(name="image", dtype="uint8", shape=(5, 4, 3), value_range=(0.0, 255.0))
_PIXELS = {"image": _RANDOM.integers(0, 256, (_N, 5, 4, 3), np.uint8)}
_LABELS = {
    CLASSIFICATION: ({"class_names": ("a", "b")}, _RANDOM.integers(0, 2, _N)),
    REGRESSION: ({"targets": ("x",)}, _RANDOM.normal(0, 1, _N).astype(np.float32)),
    MULTI_LABEL: ({"targets": ("x", "y")}, _RANDOM.integers(0, 2, (_N, 2))),
}
_HASHES = splitmix64(0, np.arange(_N))


def _cases():
    for task, (names, labels) in _LABELS.items():
        examples = _Examples(
            name="p", origin="made up", pieces=(), inputs=(_IMAGE,), task=task, **names
        )
        yield pytest.param(examples, {**_PIXELS, "label": labels}, {}, id=task)
    yield pytest.param(
        _TABLE,
        {**_ROWS, "label": _LABELS[CLASSIFICATION][1]},
        {"fare": _ROWS["fare"] < 2},
        id="table",
    )


def _count(examples, columns, missing, splits, rows) -> Statistics:
    statistics = Statistics(examples)
    for split in ("test", "train", "validation"):
        chosen = rows[splits[rows] == split]
        if len(chosen):
            parts = (
                {name: take(column, chosen) for name, column in part.items()}
                for part in (columns, missing)
            )
            statistics.add(split, *parts, {}, _HASHES[chosen])
    return statistics


@pytest.mark.parametrize(("examples", "columns", "missing"), _cases())
@given(cuts=st.lists(st.integers(0, _N), max_size=4))
def test_pieces_add_up_to_all(examples, columns, missing, cuts):
    """Figures are those of all records, whatever the pieces, except for the last digits; samples are the same."""
    splits = np.array(["train", "test", "validation"])[np.random.default_rng(1).integers(0, 3, _N)]
    merged = Statistics(examples)
    for rows in np.split(np.arange(_N), sorted(cuts)):
        piece = _count(examples, columns, missing, splits, rows)
        merged.absorb(json.loads(json.dumps(piece.state())))
    expected = _count(examples, columns, missing, splits, np.arange(_N))
    for split, part in expected.describe().items():
        described = merged.describe()[split]
        for name, summary in part.summaries.items():
            figures = {
                key: value
                for key, value in dataclasses.asdict(summary).items()
                if value is not None
            }
            merged_figures = dataclasses.asdict(described.summaries[name])
            assert {key: merged_figures[key] for key in figures} == pytest.approx(
                figures, rel=1e-12
            )
        assert dataclasses.replace(described, summaries=part.summaries) == part
        assert merged.samples[split].columns == expected.samples[split].columns
    assert merged.pictures.columns == expected.state()["pictures"][1]


def _fares(fares: np.ndarray, is_missing: np.ndarray, examples: Examples = _TABLE) -> Split:
    statistics = Statistics(examples)
    statistics.add(
        "train",
        {**_ROWS, "fare": fares, "label": np.arange(_N) % 2},
        {"fare": is_missing},
        {},
        _HASHES,
    )
    return statistics.describe()["train"]


def test_describe_is_exact():
    fares, is_missing = _ROWS["fare"], _ROWS["fare"] < 2
    split, values = _fares(fares, is_missing), fares[~is_missing].astype(np.float64)
    summary = split.summaries["fare"]
    assert (summary.missing, summary.min, summary.max) == (
        is_missing.sum(),
        values.min(),
        values.max(),
    )
    assert (summary.mean, summary.std) == pytest.approx((values.mean(), values.std()), rel=1e-12)
    assert split.class_histogram == (150, 150)


def test_constant_has_no_deviation():
    assert _fares(np.full(_N, 0.1, np.float32), np.zeros(_N, bool)).summaries["fare"].std == 0


def test_normalised_column_needs_values():
    examples = dataclasses.replace(_TABLE, deep=(Encoding(kind="numeric", columns=("fare",)),))
    with pytest.raises(UserError, match="'fare' has no values in the training split"):
        _fares(_ROWS["fare"], np.ones(_N, bool), examples)


def test_sample_has_smallest_hashes():
    sample = Sample(10)
    for rows in np.array_split(np.arange(_N), 7):
        chosen = sample.candidates(_HASHES[rows])
        sample.add(_HASHES[rows][chosen].tolist(), {"row": rows[chosen].tolist()})
    assert sample.columns["row"] == np.argsort(_HASHES)[:10].tolist()
