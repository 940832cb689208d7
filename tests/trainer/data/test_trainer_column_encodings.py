import bisect

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from common.manifest import Encoding
from trainer.data import column_encodings, records

WORDS = st.sampled_from(["", "a", "b", "ab", "Łódź", "a_X_b"])
INTEGERS = st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)


def category(encoding: Encoding, **columns) -> list[int]:
    tensors = {name: tf.constant(*column) for name, column in columns.items()}
    return column_encodings.category(encoding, tensors).numpy().tolist()


@given(st.sampled_from([(WORDS, "string"), (INTEGERS, "int64")]), st.data())
def test_vocabulary_gives_position_of_value(kind, data):
    """A value has its position in the vocabulary, and any other value the last category."""
    values, dtype = kind
    vocabulary = data.draw(st.lists(values, min_size=1, unique=True))
    column = data.draw(st.lists(values | st.sampled_from(vocabulary), min_size=1))
    encoding = Encoding(kind="vocabulary", columns=("x",), vocabulary=tuple(vocabulary))
    expected = [vocabulary.index(v) if v in vocabulary else len(vocabulary) for v in column]
    assert category(encoding, x=(column, dtype)) == expected


@given(
    st.lists(st.floats(-9, 9, width=32, allow_subnormal=False), min_size=1, unique=True),
    st.lists(st.integers(-9, 9), min_size=1),
)
def test_bucket_counts_boundaries_up_to_value(boundaries, values):
    boundaries.sort()
    encoding = Encoding(kind="buckets", columns=("x",), boundaries=tuple(boundaries))
    for numbers, dtype in ((values, "int64"), ([*values, *boundaries], "float32")):
        assert category(encoding, x=(numbers, dtype)) == [
            bisect.bisect_right(boundaries, v) for v in numbers
        ]


@given(st.lists(st.tuples(WORDS, st.integers(-9, 9), st.floats(-9, 9, width=32)), min_size=1))
def test_cross_hashes_joined_texts(rows):
    """A cross is TensorFlow's hash of the texts of its columns, and a hash that of one column."""
    text, whole, real = (list(column) for column in zip(*rows, strict=True))
    columns = {"text": (text, "string"), "whole": (whole, "int64"), "real": (real, "float32")}
    joined = [f"{row[0]}_X_{row[1]}_X_{np.float32(row[2]):.6f}" for row in rows]
    cross = Encoding(kind="cross", columns=tuple(columns), hash_buckets=997)
    assert (
        category(cross, **columns) == tf.strings.to_hash_bucket_fast(joined, 997).numpy().tolist()
    )
    single = Encoding(kind="hash", columns=("text",), hash_buckets=97)
    assert category(single, **columns) == tf.strings.to_hash_bucket_fast(text, 97).numpy().tolist()


def test_numbers_are_standardized(data, table):
    """Large integers keep their last digits, and a column of one value becomes 0."""
    columns = records.load(table, str(data), "train")
    when = columns["when"].numpy().astype(np.float64)
    miles, actual, same = column_encodings.prepare(table, columns)["deep_numbers"].numpy().T
    np.testing.assert_allclose(actual, (when - when.mean()) / when.std(), atol=1e-5)
    assert miles.std() > 0.9
    assert not same.any()
