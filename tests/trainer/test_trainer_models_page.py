"""The texts of docs/MODELS.md, and what stands there of them: real jobs."""

import re

import numpy as np
import pytest
import tensorflow as tf
import trips
from trainer_jobs import ROOT

pytestmark = pytest.mark.cluster
ENDS = {
    "no": ["Late!", "rude driver.", "A DIRTY car"],
    "yes": ["Friendly,", "a clean car", "Fast; thanks"],
}
SCHEMA = {
    "name": "comments",
    "origin": "made up",
    "columns": {"comment": {"type": "string"}, "tip": {"type": "string"}},
    "label": {"column": "tip", "classes": ["no", "yes"]},
    "deep": [{"column": "comment", "words": 12}],
}


def test_texts_of_page_are_learnt(make, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "MODELS.md").read_text()
    code = re.findall("```python\n(.*?)```", page, re.S)[2]
    (tmp_path / "texts_of_the_page.py").write_text(f"import keras\n{code}")
    monkeypatch.syspath_prepend(str(tmp_path))
    draw = np.random.default_rng(0)
    rows = [
        {"comment": f"My ride {i}: {draw.choice(ENDS[tip])}", "tip": tip}
        for i, tip in enumerate(draw.choice([*ENDS], 300))
    ]
    job = make(data=trips.make(tmp_path / "texts", rows, SCHEMA))
    flags = "--model texts_of_the_page:comments --batch-size 30 --learning-rate 0.02 --train-steps"
    job.run("chief", flags=f"{flags} 20")
    job.run("chief", "worker", flags=f"{flags} 100")
    assert job.steps("resume") == [20]
    assert job.events("evaluation")[-1]["accuracy"] == 1
    answers = job.served(comment=tf.constant(["my FRIENDLY driver, fast!", "dirty... and late"]))
    assert answers["class_name"].tolist() == [b"yes", b"no"]
