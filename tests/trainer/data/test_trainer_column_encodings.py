import bisect
import dataclasses

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from common.manifest import Encoding, Feature, Manifest, Summary
from trainer.data import column_encodings

words = st.sampled_from(["", "a", "b", "ab", "Łódź", "a_X_b"])
int64 = st.integers(-(2**63), 2**63 - 1)


def category(encoding: Encoding, **columns) -> list[int]:
    found = column_encodings.category(encoding, {name: tf.constant(*column) for name, column in columns.items()})
    assert found.dtype == tf.int64
    return found.numpy().tolist()


@given(st.sampled_from([(words, "string"), (st.integers(-5, 5) | int64, "int64")]), st.data())
def test_a_value_is_its_place_in_the_vocabulary_or_unknown(kind, data):
    of, dtype = kind
    vocabulary = data.draw(st.lists(of, min_size=1, unique=True))
    values = data.draw(st.lists(of | st.sampled_from(vocabulary), min_size=1))
    found = category(Encoding(kind="vocabulary", columns=("x",), vocabulary=tuple(vocabulary)), x=(values, dtype))
    assert found == [vocabulary.index(v) if v in vocabulary else len(vocabulary) for v in values]


@given(
    st.lists(st.floats(-9, 9, width=32, allow_subnormal=False), min_size=1, unique=True),
    st.lists(st.integers(-9, 9), min_size=1),
)
def test_a_bucket_is_the_number_of_boundaries_up_to_the_value(boundaries, values):
    boundaries.sort()
    encoding = Encoding(kind="buckets", columns=("x",), boundaries=tuple(boundaries))
    for numbers, dtype in ((values, "int64"), ([*values, *boundaries], "float32")):
        assert category(encoding, x=(numbers, dtype)) == [bisect.bisect_right(boundaries, v) for v in numbers]


@given(st.lists(st.tuples(words, st.integers(-9, 9), st.floats(-9, 9, width=32)), min_size=1))
def test_hashes_and_crosses_are_tensorflows_of_the_texts(rows):
    text, whole, real = (list(column) for column in zip(*rows, strict=True))
    columns = {"text": (text, "string"), "whole": (whole, "int64"), "real": (real, "float32")}
    texts = [text, [str(v) for v in whole], [f"{np.float32(v):.6f}" for v in real]]
    for name, expected in zip(columns, texts, strict=True):
        encoding = Encoding(kind="hash", columns=(name,), hash_buckets=97)
        assert category(encoding, **columns) == tf.strings.to_hash_bucket_fast(expected, 97).numpy().tolist()
    joined = ["_X_".join(parts) for parts in zip(*texts, strict=True)]
    cross = Encoding(kind="cross", columns=tuple(columns), hash_buckets=997)
    assert category(cross, **columns) == tf.strings.to_hash_bucket_fast(joined, 997).numpy().tolist()


def test_numbers_are_z_scores_also_of_large_integers_and_0_where_all_are_equal():
    statistics = {
        "when": Summary(missing=0, mean=1_400_000_000.5, std=0.5),
        "same": Summary(missing=0, mean=7.0, std=0.0),
    }
    manifest = Manifest(
        **{"name": "t", "origin": "", "label": "label", "class_names": ("a", "b"), "record_bytes": None},
        features=tuple(Feature(name=name, dtype="int64", statistics=s) for name, s in statistics.items()),
        **{"splits": {}, "arguments": {}},
        deep=tuple(Encoding(kind="numeric", columns=(name,)) for name in statistics),
    )
    columns = {"when": tf.constant([1_400_000_000, 1_400_000_001], tf.int64), "same": tf.constant([7, 8], tf.int64)}
    prepared = column_encodings.prepare(manifest, columns)
    assert prepared.keys() == {"deep_numbers"}
    assert prepared["deep_numbers"].numpy().tolist() == [[-1, 0], [1, 0]]


def test_missing_values_are_their_default_and_unknown_ones_the_last_category(table):
    company = next(e for e in table.deep if e.kind == "vocabulary" and e.columns == ("company",))
    area = dataclasses.replace(company, columns=("area",), vocabulary=(-1, 4))
    assert category(company, company=([company.vocabulary[1], "nobody"], "string")) == [1, 3]
    assert category(area, area=([table.feature("area").default, 5], "int64")) == [0, 2]
