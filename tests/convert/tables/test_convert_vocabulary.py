import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.tables import vocabulary
from components.convert.writing import splits
from components.convert.writing.byte_strings import Strings
from components.convert.writing.splits import Rows

columns = st.lists(st.integers(-3, 40), max_size=60) | st.lists(st.text("abc", max_size=2).map(str.encode), max_size=60)


@given(values=columns, size=st.integers(1, 20), held=st.integers(1, 50), block=st.integers(1, 20))
def test_the_most_frequent_values_are_the_same_however_few_are_counted_at_a_time(values, size, held, block):
    chosen = [value for i, value in enumerate(values) if i % 3]
    counts = collections.Counter(chosen)
    ranked = sorted(counts, key=lambda value: (-counts[value], value))[:size]
    texts = bool(values) and isinstance(values[0], bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "BLOCK", block)
        rows = Rows(len(values), lambda positions: positions % 3 > 0)
        column = Strings.of(values) if texts else np.array(values, np.int64)
        found = vocabulary.most_frequent(column, rows, size, held=held)
    assert found == [value.decode() if texts else value for value in ranked]


def test_no_more_values_than_that_are_counted_at_a_time(monkeypatch):
    most = 0

    class Watched(collections.Counter):
        def items(self):
            nonlocal most
            most = max(most, len(self))
            return super().items()

    monkeypatch.setattr(vocabulary.collections, "Counter", Watched)
    numbers = np.arange(20_000) % 5000
    monkeypatch.setattr(splits, "BLOCK", 200)
    found = vocabulary.most_frequent(numbers, Rows(len(numbers)), 7, held=400)
    assert found == list(range(7)) and 200 < most <= 400
