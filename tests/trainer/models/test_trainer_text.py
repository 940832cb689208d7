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
from trainer.models import registry
from trainer.models.text import vocabulary

# Beside any other character such as are near to what is taken out, made small or between words.
TEXTS = st.text(
    st.sampled_from("aBŁé ß\t\n\r\x0b\x0c\x1c\x1f\x85\xa0.,-_'\"[]\\^`~")
    | st.characters(codec="utf-8", exclude_characters="\0")
)
SCHEMA = {
    "name": "comments",
    "origin": "made up",
    "columns": {"comment": {"type": "string", "default": ""}, "tip": {"type": "string"}},
    "label": {"column": "tip", "classes": ["no", "yes"]},
    "deep": [{"column": "comment", "words": 3}],
}


@hypothesis.given(st.lists(TEXTS, min_size=1, max_size=5))
def test_words_are_counted_as_keras_counts_them(texts):
    found = dict(words([text.encode() for text in texts]))
    if found:
        names = [word.decode() for word in found]
        counts = keras.layers.TextVectorization(vocabulary=names, output_mode="count")(
            np.array(texts)
        ).numpy()
        assert counts.sum(axis=0).tolist() == [0, *found.values()]  # no other word
    else:
        layer = keras.layers.TextVectorization(vocabulary=["a"], output_mode="count")
        assert not layer(np.array(texts)).numpy().any()


def test_the_most_frequent_words_of_the_training_split_alone_are_in_the_manifest(tmp_path):
    rows = [
        {"comment": f"A ride no. {i % 7}, a: {i}!", "tip": "yes" if i % 2 else "no"}
        for i in range(200)
    ]
    data = trips.make(tmp_path, rows, SCHEMA | {"deep": [{"column": "comment", "words": 120}]})
    manifest = Manifest.load(data)
    texts = records.load(manifest, str(data), "train")["comment"].numpy()
    counts = collections.Counter(b" ".join(texts).lower().translate(None, b".,:!").split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    assert len(ranked) > 120
    assert [word.encode() for word in vocabulary(manifest, "comment")] == ranked[:120]
    assert vocabulary(manifest, "comment", 2) == ["a", "no"]


def test_where_there_are_no_words_it_is_said(tmp_path, table):
    with pytest.raises(
        UserError, match=r"no words of company; convert it with \{column: company, words: 10000\}"
    ):
        vocabulary(table, "company")
    rows = [{"comment": "?!", "tip": "yes" if i % 2 else "no"} for i in range(50)]
    with pytest.raises(UserError, match="column 'comment' has no words in the training split"):
        trips.make(tmp_path / "empty", rows, SCHEMA)
    manifest = Manifest.load(
        trips.make(tmp_path / "texts", [{**row, "comment": "Good"} for row in rows], SCHEMA)
    )
    with pytest.raises(UserError, match=r"has texts \(comment\), which wide_deep does not read"):
        registry.suited(None, manifest)
    assert registry.suited("mine:comments", manifest) == "mine:comments"
