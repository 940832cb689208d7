from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
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
    sums = Sums(values.dtype)
    sums.add(values)
    numbers = [Fraction(value) for value in values.tolist()]
    mean = sum(numbers) / len(numbers)
    assert sums.mean == float(mean)
    assert sums.std == math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))
