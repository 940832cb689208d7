import math
import pathlib

import numpy as np
import pytest
import sklearn.metrics
import trips

from common.manifest import Manifest
from components.evaluate.baseline import baseline
from components.evaluate.eval_set import EvalSet
from trainer.data import records


def columns(data: pathlib.Path, split: str) -> dict[str, list]:
    found = records.load(Manifest.load(data), str(data), split)
    return {name: column.numpy().tolist() for name, column in found.items()}


def scored(data: pathlib.Path) -> dict:
    """What the answers to beat are worth, and their rule."""
    rule, answers = baseline(there := EvalSet.load(str(data), "test"))
    return {"rule": rule, **there.task.measure(answers, np.array(columns(data, "test")["label"]))}


def test_rule_is_over_best_column(tmp_path):
    data = trips.make(tmp_path)
    found = scored(data)
    assert found["rule"] == "best single column, company"
    train, test = columns(data, "train"), columns(data, "test")
    prior = sum(train["label"]) / len(train["label"])
    chances = {}
    for company in {*train["company"], *test["company"]}:
        labels = [label for label, of in zip(train["label"], train["company"], strict=True) if of == company]
        chances[company] = (sum(labels) + prior) / (len(labels) + 1)
    given = np.array([chances[company] for company in test["company"]])
    truth = np.array(test["label"]) == 1
    assert found["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(truth, given))
    assert found["accuracy"] == pytest.approx(((given > 0.5) == truth).mean())
    assert found["loss"] == pytest.approx(-np.log(np.where(truth, given, 1 - given)).mean())


def schema(kind: str, classes: list[str]) -> dict:
    return {
        **trips.SCHEMA,
        "columns": {"x": {"type": kind}, "noise": {"type": "int"}, "tip": {"type": "string"}},
        "label": {"column": "tip", "classes": classes},
        "deep": [{"column": "x", **({"hash_buckets": 9} if kind == "string" else {"numeric": "z_score"})}],
        "wide": [{"column": "noise", "vocabulary": 9}],
    }


def test_rule_over_tenths_of_number(tmp_path):
    random = np.random.default_rng(0)
    x = random.random(3000)
    rows = [{"x": v, "noise": int(random.integers(5)), "tip": "abc"[int(v > 0.3) + int(v > 0.7)]} for v in x]
    data = trips.make(tmp_path, rows, schema("float", ["a", "b", "c"]))
    found = scored(data)
    assert found.keys() == {"rule", "accuracy", "loss"}
    assert found["rule"] == "best single column, x"
    assert found["accuracy"] > 0.97


def test_unseen_text_has_overall_shares(tmp_path):
    rows = [{"x": f"{i}", "noise": 0, "tip": "yes" if i % 4 else "no"} for i in range(120)]
    data = trips.make(tmp_path, rows, schema("string", ["no", "yes"]))
    found = scored(data)
    assert found["rule"] == "best single column, x"  # by heart, which helps no more: every text is another
    assert found["auc"] == 0.5
    histogram = Manifest.load(data).split("train").class_histogram
    shares = [count / sum(histogram) for count in histogram]
    assert found["loss"] == pytest.approx(-np.mean([math.log(shares[y]) for y in columns(data, "test")["label"]]))
