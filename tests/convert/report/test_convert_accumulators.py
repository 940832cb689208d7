import collections
import copy
import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from common.manifest import Summary
from components.convert.report import accumulators, bins
from components.convert.report.accumulators import Categories, Numbers, Pixels
from components.convert.writing.byte_strings import Strings

floats = arrays.arrays(
    np.float32, st.integers(1, 200), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
)
integers = arrays.arrays(
    np.int64, st.integers(1, 200), elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-30, 30)
)
texts = st.lists(st.sampled_from([b"", b"Cash", b"Credit", "Ünited".encode(), b"\xff"]), min_size=1, max_size=50)


def tallied(empty: Numbers, values, missing=None) -> Numbers:
    found = copy.deepcopy(empty)
    found.add(values, missing)
    return found


def gathered(empty: Numbers, values, missing, cuts, data) -> Numbers:
    """What comes of tallying parts of the values by themselves and merging neighbours, as JSON, in some tree."""
    parts = []
    for rows in np.split(np.arange(len(values)), sorted(cuts)):
        parts.append(tallied(empty, values[rows], None if missing is None else missing[rows]))
    while len(parts) > 1:
        i = data.draw(st.integers(0, len(parts) - 2))
        parts[i].absorb(json.loads(json.dumps(parts.pop(i + 1).state())))
    return parts[0]


def told(tally: Numbers) -> Summary:
    return tally.summary(tally.edges([tally]))


def assert_close(found: Summary, expected: Summary) -> None:
    """All is equal but for the last digits of mean and deviation."""
    if expected.mean is not None:
        near = {"rel": 1e-9, "abs": 1e-12 * max(abs(expected.min), abs(expected.max))}
        assert found.mean == pytest.approx(expected.mean, **near)
        assert found.std == pytest.approx(expected.std, **near)
        found = dataclasses.replace(found, mean=expected.mean, std=expected.std)
    assert found == expected


@given(values=floats | integers, data=st.data())
def test_numbers_are_those_of_numpy(values, data):
    missing = data.draw(arrays.arrays(bool, len(values)))
    summary, present = told(tallied(Numbers(values.dtype), values, missing)), values[~missing]
    assert summary.missing == missing.sum()
    assert sum(summary.histogram) == len(present) and len(summary.histogram) == len(summary.edges) + 1
    assert list(summary.edges) == sorted(set(summary.edges)) and len(summary.edges) <= 22
    if not len(present):
        assert (summary.mean, summary.std, summary.min, summary.max, summary.edges) == (None, None, None, None, ())
        return
    assert (summary.min, summary.max) == (present.min(), present.max())
    numbers = present.astype(np.float64)
    scale = float(np.abs(numbers).max())
    assert summary.mean == pytest.approx(numbers.mean(), rel=1e-9, abs=1e-12 * scale)
    assert summary.std == pytest.approx(numbers.std(), rel=1e-9, abs=1e-12 * scale)
    bins = [sum(float(value) >= edge for edge in summary.edges) for value in present.tolist()]
    assert summary.histogram == tuple(np.bincount(bins, minlength=len(summary.edges) + 1))


def test_the_histogram_spans_the_centre_and_counts_what_lies_beyond():
    values = np.r_[np.linspace(10, 20, 980), np.full(10, -1e9), np.full(10, 1e9)].astype(np.float32)
    summary = told(tallied(Numbers(), values))
    assert summary.histogram[0] == summary.histogram[-1] == 10
    assert 10 <= summary.edges[0] < 10.2 and 19.8 < summary.edges[-1] <= 20.01
    assert all(40 <= count <= 60 for count in summary.histogram[1:-1])


@pytest.mark.parametrize(
    ("values", "edges", "histogram"),
    [
        (np.repeat(np.arange(1, 8), np.arange(1, 8)), tuple(range(1, 9)), (0, 1, 2, 3, 4, 5, 6, 7, 0)),
        (np.full(9, 2.5, np.float32), (2.5, float(np.nextafter(np.float32(2.5), 3))), (0, 9, 0)),
        (np.array([-0.0, -0.0], np.float32), (0.0, float(2**29 * np.nextafter(0, 1))), (0, 2, 0)),
    ],
    ids=["a bin for each of few integers", "one for a constant", "there is one zero"],
)
def test_few_values_have_a_bin_each(values, edges, histogram):
    summary = told(tallied(Numbers(values.dtype), values[::-1]))
    assert (summary.edges, summary.histogram) == (edges, histogram)
    assert "-0.0" not in repr((summary.mean, summary.std, summary.min, summary.max, summary.edges))


@given(values=texts, data=st.data())
def test_categories_are_counted(values, data):
    missing = data.draw(arrays.arrays(bool, len(values)))
    summary = told(tallied(Categories("string", {b"Cash", b"", b"unseen"}), Strings.of(values), missing))
    counts = collections.Counter(values)
    assert summary.missing == missing.sum() and summary.unique == len(counts)
    assert dict(zip(summary.frequent, summary.counts, strict=True)) == {
        value.decode(errors="backslashreplace"): count for value, count in counts.items()
    }
    assert list(summary.counts) == sorted(summary.counts, reverse=True)
    assert summary.in_vocabulary == counts[b"Cash"] + counts[b""]
    assert summary.mean is None and summary.histogram is None


@given(
    values=floats | integers | texts.map(Strings.of),
    kind=st.sampled_from([Numbers, Categories]),
    cuts=st.lists(st.integers(0, 200), max_size=5),
    most=st.integers(8, 60),
    data=st.data(),
)
def test_whatever_the_parts_and_the_order_in_which_neighbours_are_merged_all_of_it_is_the_same(
    values, kind, cuts, most, data
):
    missing = data.draw(st.none() | arrays.arrays(bool, len(values)))
    if isinstance(values, Strings):
        empty = Categories("string", {b"Cash"})
    else:
        empty = Categories("int64", {-1, 3}) if kind is Categories and values.dtype == int else Numbers(values.dtype)
    limits = {
        (bins, "_MOST"): most,
        (accumulators, "_MOST_CATEGORIES"): most,
        (accumulators, "_MOST_CATEGORY_BYTES"): 9,
    }
    with pytest.MonkeyPatch.context() as patch:
        for where, limit in limits.items():
            patch.setattr(*where, limit)
        whole = tallied(empty, values, missing)
        parts = gathered(empty, values, missing, [cut for cut in cuts if cut < len(values)], data)
        assert_close(told(parts), told(whole))
        edges = whole.edges([whole])
        assert parts.distribution(edges) == whole.distribution(edges)


def test_too_many_categories_are_not_told_but_the_vocabulary_is_counted(monkeypatch):
    monkeypatch.setattr(accumulators, "_MOST_CATEGORIES", 50)
    values = Strings.of([b"known"] * 5 + [str(i).encode() for i in range(60)] + [b"known"])
    found = tallied(Categories("string", {b"known"}), values)
    summary = told(found)
    assert (summary.unique, summary.frequent, summary.counts, summary.in_vocabulary) == (None, None, None, 6)
    assert found.distribution(()) is None


def test_long_texts_are_bounded_too(monkeypatch):
    monkeypatch.setattr(accumulators, "_MOST_CATEGORY_BYTES", 1000)
    values = Strings.of([b"x" * 300 + str(i).encode() for i in range(4)])
    found = tallied(Categories("string"), values[np.arange(3)])
    assert told(found).frequent[0] == "x" * 79 + "…"
    found.add(values)
    assert told(found).unique is None


@pytest.mark.parametrize("shape", [(700, 4, 3, 1), (3, 200, 200, 3)])
@pytest.mark.parametrize("channels_first", [False, True])
def test_pixels_are_those_of_numpy(shape, channels_first):
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    images[..., 0] //= 2
    if channels_first:
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    images[0] = 255
    empty = Pixels(shape[-1])
    assert told(empty).channel_mean is told(empty).mean is None and sum(told(empty).histogram) == 0
    whole = tallied(empty, images[: len(images) // 2])
    whole.absorb(json.loads(json.dumps(tallied(empty, images[len(images) // 2 :]).state())))
    found = told(whole)
    assert found.channel_mean == tuple(images.reshape(-1, shape[-1]).astype(float).mean(axis=0))
    assert found.channel_std == pytest.approx(images.reshape(-1, shape[-1]).astype(float).std(axis=0), rel=1e-12)
    brightness = images.reshape(shape[0], -1).astype(float).mean(axis=1).astype(np.float32)
    assert (found.min, found.max) == (brightness.min(), brightness.max())
    assert found.mean == pytest.approx(brightness.mean(), rel=1e-6) and sum(found.histogram) == shape[0]
