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


def converted(directory, comments: list[str], count: int) -> Manifest:
    schema = {
        "name": "comments",
        "origin": "made up",
        "columns": {"comment": {"type": "string", "default": ""}, "tip": {"type": "string"}},
        "label": {"column": "tip", "classes": ["no", "yes"]},
        "deep": [{"column": "comment", "words": count}],
    }
    rows = [{"comment": text, "tip": ["no", "yes"][i % 2]} for i, text in enumerate(comments)]
    return Manifest.load(trips.make(directory, rows, schema))


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
    manifest = converted(tmp_path, [f"A ride no. {i % 7}, a: {i}!" for i in range(200)], 120)
    texts = records.load(manifest, str(tmp_path / "data"), "train")["comment"].numpy()
    counts = collections.Counter(b" ".join(texts).lower().translate(None, b".,:!").split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    assert len(ranked) > 120
    assert [word.encode() for word in vocabulary(manifest, "comment")] == ranked[:120]
    assert vocabulary(manifest, "comment", 2) == ["a", "no"]


def test_missing_words_are_error(tmp_path, table):
    repair = r"no words of company; convert it with \{column: company, words: 10000\}"
    with pytest.raises(UserError, match=repair):
        vocabulary(table, "company")
    with pytest.raises(UserError, match="column 'comment' has no words in the training split"):
        converted(tmp_path / "empty", ["?!"] * 50, 3)
