import collections
import json

from hypothesis import given
from hypothesis import strategies as st

from components.convert.tables.vocabulary import Frequencies

texts = st.lists(st.text("abé", max_size=2), max_size=60)


@given(parts=st.lists(texts, max_size=5), size=st.integers(1, 20))
def test_values_of_all_pieces_are_ranked_by_how_often_they_occur(parts, size):
    merged = Frequencies()
    for part in parts:
        of_part = Frequencies()
        of_part.add((value.encode(), 1) for value in part)
        merged.add(json.loads(json.dumps(of_part.state)))
    exact = collections.Counter(value for part in parts for value in part)
    assert merged.best(size) == sorted(exact, key=lambda value: (-exact[value], value))[:size]
