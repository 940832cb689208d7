"""Words that the converter counts are those that Keras looks up."""

import collections

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import trips

from common.errors import UserError
from common.manifest import Manifest
from components.convert.sources.tables import words
from trainer.data import records
from trainer.models.text import vocabulary

# Beside any other character such as are near to what is taken out, made small or between words.
TEXTS = st.text(
    st.sampled_from("aBŁé ß\t\n\r\x0b\x0c\x1c\x1f\x85\xa0.,-_'\"[]\\^`~")
    | st.characters(codec="utf-8", exclude_characters="\0")
)


@hypothesis.given(st.lists(TEXTS, min_size=1, max_size=5))
def test_words_are_counted_as_by_keras(texts):
    """The converter counts each word of texts as often as Keras finds it, and no other."""
    counts = dict(words([text.encode() for text in texts]))
    names = [word.decode() for word in counts] or ["a"]
    layer = keras.layers.TextVectorization(vocabulary=names, output_mode="count")
    expected = layer(np.array(texts)).numpy().sum(axis=0).tolist()
    assert expected == ([0, *counts.values()] if counts else [0, 0])


def test_most_frequent_words_are_in_manifest(tmp_path):
    """The words of the training split alone count."""
    schema = {
        "name": "comments",
        "origin": "made up",
        "columns": {"comment": {"type": "string"}, "tip": {"type": "string"}},
        "label": {"column": "tip", "classes": ["no", "yes"]},
        "deep": [{"column": "comment", "words": 120}],
    }
    ends = ["no", "yes"] * 100
    rows = [{"comment": f"A ride no. {i % 7}, a: {i}!", "tip": tip} for i, tip in enumerate(ends)]
    manifest = Manifest.load(trips.make(tmp_path, rows, schema))
    texts = records.load(manifest, str(tmp_path / "data"), "train")["comment"].numpy()
    counts = collections.Counter(b" ".join(texts).lower().translate(None, b".,:!").split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    assert len(ranked) > 120
    assert [word.encode() for word in vocabulary(manifest, "comment")] == ranked[:120]
    assert vocabulary(manifest, "comment", 2) == ["a", "no"]


def test_missing_words_are_error(table):
    repair = r"no words of company; convert it with \{column: company, words: 10000\}"
    with pytest.raises(UserError, match=repair):
        vocabulary(table, "company")
