from __future__ import annotations

import collections

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.convert.tables import vocabulary
from components.convert.writing.byte_strings import Strings
from components.convert.writing.splits import Rows

blocks = st.lists(st.lists(st.integers(-3, 40)), max_size=5) | st.lists(
    st.lists(st.text("abc", max_size=2).map(str.encode)), max_size=5
)


@given(blocks=blocks, size=st.integers(1, 20), held=st.integers(1, 50))
def test_the_most_frequent_values_are_the_same_however_few_are_counted_at_a_time(blocks, size, held):
    counts = collections.Counter(value for block in blocks for value in block)
    ranked = sorted(counts, key=lambda value: (-counts[value], value))[:size]
    found = vocabulary.most_frequent(lambda: iter(blocks), size, held=held)
    assert found == [value.decode() if isinstance(value, bytes) else value for value in ranked]


def test_no_more_values_than_that_are_counted_at_a_time(monkeypatch):
    most = 0

    class Watched(collections.Counter):
        def items(self):
            nonlocal most
            most = max(most, len(self))
            return super().items()

    monkeypatch.setattr(vocabulary.collections, "Counter", Watched)
    numbers = np.arange(20_000) % 5000
    found = vocabulary.most_frequent(lambda: (part.tolist() for part in np.split(numbers, 100)), 7, held=400)
    assert found == list(range(7)) and 200 < most <= 400


def test_the_values_of_a_column_come_in_order_in_pieces_of_bounded_size():
    rows = Rows(1000, lambda positions: positions % 3 == 0)
    numbers = np.arange(1000) * 7
    assert [v for piece in vocabulary.values(numbers, rows) for v in piece] == numbers[::3].tolist()
    texts = Strings.of([b"x" * (i % 50_000) for i in range(0, 1_000_000, 1000)])
    pieces = list(vocabulary.values(texts, rows))
    assert [v for piece in pieces for v in piece] == texts.tolist()[::3]
    assert max(sum(map(len, piece)) for piece in pieces) <= 1 << 22
