"""What is no number is null, whatever it is in, and all else is as it was."""

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.undefined import figure, plain

ODD = [math.nan, math.inf, -math.inf]
leaves = st.none() | st.booleans() | st.integers() | st.text() | st.floats() | st.floats(width=32).map(np.float32)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner), max_leaves=20
)


@given(values)
def test_it_is_strict_json_with_null_for_what_is_no_number_and_the_rest_as_it_was(value):
    def expected(part: object) -> object:
        if isinstance(part, dict):
            return {key: expected(each) for key, each in part.items()}
        if isinstance(part, list | tuple):
            return list(map(expected, part))
        return None if isinstance(part, float | np.float32) and str(float(part)) in ("nan", "inf", "-inf") else part

    assert json.loads(json.dumps(plain(value), allow_nan=False)) == expected(value)


def test_people_see_a_dash_and_four_digits():
    assert [figure(plain(value)) for value in (*ODD, 0.98765, 1)] == ["-", "-", "-", "0.9877", "1.0000"]
