"""Words that the converter counts are those that Keras looks up."""

import collections
import itertools

import hypothesis
import hypothesis.strategies as st
import keras
import numpy as np
import pytest
import tensorflow as tf
import trips

from components.convert.expressions import connection
from components.convert.sources.tables import words
from tests.errors import user_error
from tests.root import blocks
from trainer.models.text import vocabulary

# Beside any other character such as are near to what is taken out, made small or between words.
TEXTS = st.text(
    st.sampled_from("aBŁé ß\t\n\r\x0b\x0c\x1c\x1f\x85\xa0.,-_'\"[]\\^`~")
    | st.characters(codec="utf-8", exclude_characters="\0")
)


@hypothesis.given(st.lists(TEXTS, min_size=1, max_size=5))
def test_words_are_counted_as_by_keras(texts):
    """The converter counts each word of texts as often as Keras finds it, and no other."""
    query = f"SELECT {words('text')} FROM (SELECT unnest(?) AS text)"
    counts = collections.Counter(
        word for (row,) in connection().execute(query, [texts]).fetchall() for word in row
    )
    layer = keras.layers.TextVectorization(vocabulary=[*counts] or ["a"], output_mode="count")
    expected = layer(np.array(texts)).numpy().sum(axis=0).tolist()
    assert expected == ([0, *counts.values()] if counts else [0, 0])


def converted(directory, comments, words):
    """Converts comments, of which each other one is for a tip."""
    columns = {"comment": {"type": "string"}, "tip": {"type": "string"}}
    deep = [{"column": "comment", "words": words}]
    schema = {**trips.SCHEMA, "columns": columns, "deep": deep, "wide": []}
    tips = itertools.cycle(["no", "yes"])
    rows = [{"comment": text, "tip": tip} for text, tip in zip(comments, tips, strict=False)]
    return trips.make(directory, rows, schema)


@pytest.mark.cluster
def test_texts_of_page_are_learnt(make, tmp_path, monkeypatch):
    code = blocks("MODELS.md")[2]
    (tmp_path / "texts_of_the_page.py").write_text(f"import keras\n{code}")
    monkeypatch.syspath_prepend(str(tmp_path))
    ends = ["Late!", "Friendly,", "rude driver.", "a clean car", "A DIRTY car", "Fast; thanks"]
    comments = [f"My ride {i}: {ends[i % 6]}" for i in range(300)]
    job = make(data=converted(tmp_path / "texts", comments, 12))
    flags = "--model texts_of_the_page:comments --batch-size 30 --learning-rate 0.02"
    job.run("chief", "worker", flags=f"{flags} --train-steps 100")
    assert job.events("evaluation")[-1]["accuracy"] == 1
    answers = job.served(comment=tf.constant(["my FRIENDLY driver, fast!", "dirty... and late"]))
    assert answers["class_name"].tolist() == [b"yes", b"no"]


def test_missing_words_are_error(table):
    repair = r"no words of company; convert it with \{column: company, words: 10000\}"
    with user_error(repair):
        vocabulary(table, "company")
