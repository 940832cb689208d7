from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from components.convert.report.exact_sum import Sums

floats = arrays.arrays(
    np.float32, st.integers(1, 60), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)
)
integers = arrays.arrays(np.int64, st.integers(1, 60), elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9))


@given(values=floats | integers)
def test_mean_and_deviation_are_those_of_exact_arithmetic(values):
    sums = Sums.of(values.dtype)
    sums.add(values)
    numbers = [Fraction(value) for value in values.tolist()]
    mean = sum(numbers) / len(numbers)
    assert sums.mean == float(mean)
    assert sums.std == math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))


@given(values=floats | integers, cuts=st.lists(st.integers(0, 60), max_size=4), seed=st.integers(0, 9))
def test_they_do_not_depend_on_order_or_pieces(values, cuts, seed):
    whole, parts = Sums.of(values.dtype), Sums.of(values.dtype)
    whole.add(values)
    shuffled = np.random.default_rng(seed).permutation(values)
    for piece in np.split(shuffled, sorted(min(cut, len(values)) for cut in cuts)):
        part = Sums.of(values.dtype)
        part.add(piece)
        parts.merge(part)
    assert parts == whole


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_no_numbers_have_no_mean(dtype):
    sums = Sums.of(dtype)
    sums.add(np.empty(0, dtype))
    assert (sums.count, sums.mean, sums.std) == (0, None, None)


def test_equal_numbers_do_not_deviate():
    sums = Sums.of(np.float32)
    sums.add(np.full(100_000, 0.1, np.float32))
    assert sums.mean == float(np.float32(0.1)) and sums.std == 0
