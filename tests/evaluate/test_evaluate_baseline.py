import numpy as np
import pytest
import sklearn.metrics
import trips

from common.manifest import Manifest
from components.evaluate.baseline import baseline
from components.evaluate.eval_set import EvalSet


def scored(data):
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
    assert metrics["loss"] == pytest.approx(sklearn.metrics.log_loss(truth, chances))


def make(directory, values, labels, kind, **encoding):
    """Converts a table of a column and labels; returns the metrics of its baseline."""
    schema = {
        **trips.SCHEMA,
        "columns": {"x": {"type": kind}, "tip": {"type": "string"}},
        "label": {"column": "tip", "classes": [*"abc"]},
        "deep": [{"column": "x", **encoding}],
        "wide": [],
    }
    rows = [{"x": x, "tip": label} for x, label in zip(values, labels, strict=True)]
    return scored(trips.make(directory, rows, schema))


def test_rule_over_tenths_of_number(tmp_path):
    values = np.random.default_rng(0).random(3000)
    labels = ["abc"[int(x > 0.3) + int(x > 0.7)] for x in values]
    assert make(tmp_path, values, labels, "float", numeric="z_score")["accuracy"] > 0.97


def test_unseen_text_has_overall_shares(tmp_path):
    """Texts that all differ are known by heart, which is no help with others."""
    values, labels = [f"{i}" for i in range(120)], [*"abbc"] * 30
    metrics = make(tmp_path, values, labels, "string", hash_buckets=9)
    splits = Manifest.load(tmp_path / "data").splits
    train, test = (np.array(splits[name].class_histogram) for name in ("train", "test"))
    loss = -(test * np.log(train / train.sum())).sum() / test.sum()
    assert metrics["loss"] == pytest.approx(loss)
