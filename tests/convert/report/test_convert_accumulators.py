import collections
import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from components.convert.report import accumulators
from components.convert.report.accumulators import Categories, Numbers, Pixels, Tally
from components.convert.writing.byte_strings import Strings

floats = arrays.arrays(
    np.float32, st.integers(1, 200), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
)
integers = arrays.arrays(
    np.int64, st.integers(1, 200), elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-30, 30)
)
texts = st.lists(st.sampled_from([b"", b"Cash", b"Credit", "Ünited".encode(), b"\xff"]), min_size=1, max_size=50)


def gathered(empty: Tally, values, missing, order) -> Tally:
    """What comes of tallying pieces of the values by themselves and merging them in some order."""
    whole, pieces = copy.deepcopy(empty), []
    for rows in np.array_split(np.arange(len(values)), len(order)):
        part = copy.deepcopy(empty)
        part.add(values[rows], None if missing is None else missing[rows])
        pieces.append(part)
    for i in order:
        whole.merge(pieces[i])
    return whole


@given(values=floats | integers, data=st.data())
def test_numbers_are_those_of_numpy_and_their_mean_and_deviation_those_of_exact_arithmetic(values, data):
    missing = data.draw(arrays.arrays(bool, len(values)))
    found = Numbers(values[~missing])
    found.add(values, missing)
    summary, present = found.summary(), values[~missing]
    assert summary.missing == missing.sum()
    assert sum(summary.histogram) == len(present) and len(summary.histogram) == len(summary.edges) + 1
    assert list(summary.edges) == sorted(set(summary.edges)) and len(summary.edges) <= 22
    if not len(present):
        assert (summary.mean, summary.std, summary.min, summary.max, summary.edges) == (None, None, None, None, ())
        return
    assert (summary.min, summary.max) == (present.min(), present.max())
    numbers = [Fraction(value) for value in present.tolist()]
    mean = sum(numbers) / len(numbers)
    assert summary.mean == float(mean)
    assert summary.std == math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))
    bins = [sum(value >= edge for edge in summary.edges) for value in present.tolist()]
    assert summary.histogram == tuple(np.bincount(bins, minlength=len(summary.edges) + 1))


def test_the_histogram_spans_the_centre_and_counts_what_lies_beyond():
    values = np.r_[np.linspace(10, 20, 980), np.full(10, -1e9), np.full(10, 1e9)].astype(np.float32)
    found = Numbers(values)
    found.add(values)
    summary = found.summary()
    assert summary.histogram[0] == summary.histogram[-1] == 10
    assert 10 <= summary.edges[0] < 10.2 and 19.8 < summary.edges[-1] <= 20.01
    assert all(40 <= count <= 60 for count in summary.histogram[1:-1])


@pytest.mark.parametrize(
    ("values", "edges", "histogram"),
    [
        (np.repeat(np.arange(1, 8), np.arange(1, 8)), tuple(range(1, 9)), (0, 1, 2, 3, 4, 5, 6, 7, 0)),
        (np.full(9, 2.5, np.float32), (2.5, float(np.nextafter(np.float32(2.5), 3))), (0, 9, 0)),
        (np.array([-0.0, -0.0], np.float32), (0.0, float(np.nextafter(np.float32(0), 1))), (0, 2, 0)),
    ],
    ids=["a bin for each of few integers", "one for a constant", "there is one zero"],
)
def test_few_values_have_a_bin_each(values, edges, histogram):
    found = Numbers(values)
    found.add(values[::-1])
    summary = found.summary()
    assert (summary.edges, summary.histogram) == (edges, histogram)
    assert "-0.0" not in repr((summary.mean, summary.std, summary.min, summary.max, summary.edges))


@given(values=texts, data=st.data())
def test_categories_are_counted(values, data):
    missing = data.draw(arrays.arrays(bool, len(values)))
    found = Categories(Strings.of(values), ("Cash", "", "unseen"))
    found.add(Strings.of(values), missing)
    summary, counts = found.summary(), collections.Counter(values)
    assert summary.missing == missing.sum() and summary.unique == len(counts)
    assert dict(zip(summary.frequent, summary.counts, strict=True)) == {
        value.decode(errors="backslashreplace"): count for value, count in counts.items()
    }
    assert list(summary.counts) == sorted(summary.counts, reverse=True)
    assert summary.in_vocabulary == counts[b"Cash"] + counts[b""]
    assert summary.mean is None and summary.histogram is None


@given(values=floats | integers | texts.map(Strings.of), order=st.permutations(range(4)), data=st.data())
def test_pieces_in_any_order_make_the_same_summary(values, order, data):
    missing = data.draw(st.none() | arrays.arrays(bool, len(values)))
    empty = Categories(values, ("Cash",)) if isinstance(values, Strings) else Numbers(values)
    whole = copy.deepcopy(empty)
    whole.add(values, missing)
    assert gathered(empty, values, missing, order).summary() == whole.summary()


def test_too_many_categories_are_not_told_but_the_vocabulary_is_counted(monkeypatch):
    monkeypatch.setattr(accumulators, "_MOST_CATEGORIES", 50)
    values = Strings.of([b"known"] * 5 + [str(i).encode() for i in range(60)] + [b"known"])
    for order in ((0, 1, 2), (2, 0, 1)):
        found = gathered(Categories(values, ("known",)), values, None, order)
        summary = found.summary()
        assert (summary.unique, summary.frequent, summary.counts, summary.in_vocabulary) == (None, None, None, 6)
        assert found.distribution() is None


def test_long_texts_are_bounded_too(monkeypatch):
    monkeypatch.setattr(accumulators, "_MOST_CATEGORY_BYTES", 1000)
    values = Strings.of([b"x" * 300 + str(i).encode() for i in range(4)])
    found = Categories(values, None)
    found.add(values[np.arange(3)])
    assert found.summary().frequent[0] == "x" * 79 + "…"
    found.add(values)
    assert found.summary().unique is None


@pytest.mark.parametrize("shape", [(700, 4, 3, 1), (3, 200, 200, 3)])
@pytest.mark.parametrize("channels_first", [False, True])
def test_pixels_are_those_of_numpy(shape, channels_first):
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    images[..., 0] //= 2
    if channels_first:
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    images[0] = 255
    empty = Pixels(images).summary()
    assert empty.channel_mean is empty.mean is None and sum(empty.histogram) == 0
    found = gathered(Pixels(images), images, None, (1, 0)).summary()
    assert found.channel_mean == tuple(images.reshape(-1, shape[-1]).astype(float).mean(axis=0))
    assert found.channel_std == pytest.approx(images.reshape(-1, shape[-1]).astype(float).std(axis=0), rel=1e-12)
    brightness = images.reshape(shape[0], -1).astype(float).mean(axis=1).astype(np.float32)
    assert (found.min, found.max) == (brightness.min(), brightness.max())
    assert found.mean == pytest.approx(brightness.mean(), rel=1e-6) and sum(found.histogram) == shape[0]
