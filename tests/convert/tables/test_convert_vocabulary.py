import collections
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.tables import vocabulary
from components.convert.tables.vocabulary import Frequencies

columns = st.lists(st.integers(-3, 40), max_size=60) | st.lists(st.text("abé", max_size=2).map(str.encode), max_size=60)


@given(parts=st.lists(columns, max_size=5), size=st.integers(1, 20), held=st.integers(2, 50), by_piece=st.booleans())
def test_values_are_ranked_by_how_often_they_occur_or_the_error_is_known(parts, size, held, by_piece):
    parts = [[v for v in part if isinstance(v, type(parts[0][0]))] if parts[0] else [] for part in parts]
    exact = collections.Counter(v for part in parts for v in part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "HELD", held)
        merged = Frequencies()
        for part in parts:
            of_part = Frequencies() if by_piece else merged
            for value in part:
                of_part.add([(value, 1)])
                assert len(of_part.state[0]) <= held
            if by_piece:
                merged.add(*json.loads(json.dumps(of_part.state)))
        state, error = merged.state
        counted = {v.encode() if isinstance(v, str) else v: count for v, count in state}
        assert len(exact) > held or not error
        assert error <= exact.total() / (held // 2 + 1)
        assert all(count - error <= counted.get(value, 0) <= count for value, count in exact.items())
        if not error:
            ranked = sorted(exact, key=lambda value: (-exact[value], value))[:size]
            assert merged.best(size, "c") == [v.decode() if isinstance(v, bytes) else v for v in ranked]


def test_what_is_not_certain_is_told(monkeypatch, capsys):
    monkeypatch.setattr(vocabulary, "HELD", 4)
    frequencies = Frequencies()
    frequencies.add([(7, 10), (8, 2), (9, 2), (5, 2), (6, 1)])
    assert frequencies.best(3, "age") == [7]
    assert capsys.readouterr().out.startswith("age: more than 4 different values; ")
    assert frequencies.state == [[(7, 8)], 2]
