import bisect

import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from common.manifest import Encoding
from trainer.data import column_encodings

WORDS = st.sampled_from(["", "a", "b", "ab", "Łódź", "a_X_b"])
INTEGERS = st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)


def category(kind, columns, **options):
    tensors = {name: tf.constant(*column) for name, column in columns.items()}
    encoding = Encoding(kind=kind, columns=tuple(columns), **options)
    return column_encodings.category(encoding, tensors).numpy().tolist()


@given(st.sampled_from([(WORDS, "string"), (INTEGERS, "int64")]), st.data())
def test_vocabulary_gives_position_of_value(kind, data):
    """A value has its position in the vocabulary, and any other value the last category."""
    values, dtype = kind
    words = data.draw(st.lists(values, min_size=1, unique=True))
    column = data.draw(st.lists(values | st.sampled_from(words), min_size=1))
    expected = [words.index(v) if v in words else len(words) for v in column]
    assert category("vocabulary", {"x": (column, dtype)}, vocabulary=tuple(words)) == expected


@given(
    st.sets(st.floats(-9, 9, width=32, allow_subnormal=False), min_size=1).map(sorted),
    st.lists(st.integers(-9, 9), min_size=1),
)
def test_bucket_counts_boundaries_up_to_value(boundaries, values):
    """A bucket is the number of boundaries that are not above the value."""
    for numbers, dtype in ((values, "int64"), ([*values, *boundaries], "float32")):
        expected = [bisect.bisect_right(boundaries, v) for v in numbers]
        columns = {"x": (numbers, dtype)}
        assert category("buckets", columns, boundaries=tuple(boundaries)) == expected
