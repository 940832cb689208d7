import pathlib

import numpy as np
import pytest
import sklearn.metrics
import trips

from common.manifest import Manifest
from components.evaluate.baseline import baseline
from components.evaluate.eval_set import EvalSet


def scored(data: pathlib.Path) -> dict:
    """Returns the metrics of the baseline, with its rule."""
    records = EvalSet.load(str(data), "test")
    rule, answers = baseline(records)
    return {"rule": rule, **records.task.measure(answers, records.columns["label"])}


def test_rule_is_over_best_column(data):
    train, test = (EvalSet.load(str(data), split).columns for split in ("train", "test"))
    prior = train["label"].mean()
    chances = np.zeros(len(test["label"]))
    for company in {*test["company"]}:
        labels = train["label"][train["company"] == company]
        chances[test["company"] == company] = (labels.sum() + prior) / (len(labels) + 1)
    truth = test["label"] == 1
    metrics = scored(data)
    assert metrics["rule"] == "best single column, company"
    assert metrics["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(truth, chances))
    assert metrics["accuracy"] == pytest.approx(((chances > 0.5) == truth).mean())
    assert metrics["loss"] == pytest.approx(-np.log(np.where(truth, chances, 1 - chances)).mean())


def schema(kind: str, classes: str, **encoding: object) -> dict:
    return {
        **trips.SCHEMA,
        "columns": {"x": {"type": kind}, "noise": {"type": "int"}, "tip": {"type": "string"}},
        "label": {"column": "tip", "classes": [*classes]},
        "deep": [{"column": "x", **encoding}],
        "wide": [{"column": "noise", "vocabulary": 9}],
    }


def test_rule_over_tenths_of_number(tmp_path):
    random = np.random.default_rng(0)
    rows = [
        {"x": x, "noise": noise, "tip": "abc"[int(x > 0.3) + int(x > 0.7)]}
        for x, noise in zip(random.random(3000), random.integers(5, size=3000), strict=True)
    ]
    metrics = scored(trips.make(tmp_path, rows, schema("float", "abc", numeric="z_score")))
    assert metrics.keys() == {"rule", "accuracy", "loss"}
    assert metrics["rule"] == "best single column, x" and metrics["accuracy"] > 0.97


def test_unseen_text_has_overall_shares(tmp_path):
    """Texts that all differ are known by heart, which is no help with others."""
    rows = [{"x": f"{i}", "noise": 0, "tip": "ny"[i % 4 > 0]} for i in range(120)]
    data = trips.make(tmp_path, rows, schema("string", "ny", hash_buckets=9))
    metrics = scored(data)
    assert metrics["rule"] == "best single column, x" and metrics["auc"] == 0.5
    train, test = (
        np.array(Manifest.load(data).split(split).class_histogram) for split in ("train", "test")
    )
    assert metrics["loss"] == pytest.approx(
        -(test * np.log(train / train.sum())).sum() / test.sum()
    )
