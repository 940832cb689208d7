import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing.byte_strings import Strings


@given(values=st.lists(st.binary(max_size=12), max_size=20), data=st.data())
def test_rows_are_the_values_at_their_places(values, data):
    rows = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=30)) if values else []
    taken = Strings.of(values)[np.array(rows, np.int64)]
    assert taken.tolist() == [values[row] for row in rows] and len(taken) == len(rows)
    assert taken[np.arange(len(rows))[::-1]].tolist() == taken.tolist()[::-1]


@pytest.mark.parametrize("length", [3, 3_000_000])
def test_taking_rows_takes_little_more_memory_than_their_bytes(length):
    values = Strings.of([bytes(length)] * (6_000_000 // length))
    rows = np.arange(len(values))
    tracemalloc.start()
    taken = values[rows]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(taken.data) == 6_000_000 and peak < 2 * (taken.data.nbytes + 4 * taken.lengths.nbytes) + 10_000_000
