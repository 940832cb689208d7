"""The texts of docs/MODELS.md, and what stands there of them: real jobs."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
import trips

DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs" / "MODELS.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)

pytestmark = pytest.mark.cluster


def test_the_texts_of_the_page_train_go_on_and_are_answered_as_they_are(
    make, tmp_path, monkeypatch
):
    draw = np.random.default_rng(0)
    ends = {
        "no": ["Late!", "rude driver.", "A DIRTY car"],
        "yes": ["Friendly,", "a clean car", "Fast; thanks"],
    }
    rows = [
        {"comment": f"{draw.choice(['My', 'Our'])} ride: {draw.choice(ends[tip])}", "tip": tip}
        for tip in draw.choice(["no", "yes"], 300)
    ]
    schema = {
        "name": "comments",
        "origin": "made up",
        "columns": {"comment": {"type": "string"}, "tip": {"type": "string"}},
        "label": {"column": "tip", "classes": ["no", "yes"]},
        "deep": [{"column": "comment", "words": 12}],
    }
    job = make(data=trips.make(tmp_path / "texts", rows, schema))
    (tmp_path / "texts_of_the_page.py").write_text(f"import keras\n{CODE[2]}")
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = ["--model", "texts_of_the_page:comments", "--batch-size", 30, "--learning-rate", 0.02]
    job.run("chief", flags=[*flags, "--train-steps", 20])
    job.run("chief", "worker", flags=[*flags, "--train-steps", 100])
    assert [e["step"] for e in job.events() if e["event"] == "resume"] == [20]
    assert [e["accuracy"] for e in job.events() if e["event"] == "evaluation"][-1] == 1
    served = tf.saved_model.load(str(job.directory / "model")).signatures["serving_default"]
    answers = served(comment=tf.constant(["my FRIENDLY driver, fast!", "dirty... and late"]))
    assert answers["class_name"].numpy().tolist() == [b"yes", b"no"]
