import tracemalloc

import numpy as np
import pytest

from components.convert.writing.byte_strings import Strings


@pytest.mark.parametrize("length", [3, 3_000_000])
def test_taking_rows_takes_little_more_memory_than_their_bytes(length):
    values = Strings.of([bytes(length)] * (6_000_000 // length))
    rows = np.arange(len(values))
    tracemalloc.start()
    taken = values[rows]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(taken.data) == 6_000_000 and peak < 2 * (taken.data.nbytes + 4 * taken.lengths.nbytes) + 10_000_000
