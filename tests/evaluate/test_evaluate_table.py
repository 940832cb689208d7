"""A table with two classes is judged by the area under the ROC curve."""

import json

import numpy as np
import pytest
import sklearn.metrics
import tensorflow as tf
import trips
from saved_models import save_model

from common.manifest import Manifest
from components.evaluate import component
from components.evaluate.baseline import baseline
from components.evaluate.eval_set import EvalSet
from components.register.__main__ import main as register
from tests.convert.dataset_files import convert_to, idx_bytes, write_files


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    """Writes a model that predicts by company and, by a weight, by distance."""
    manifest = Manifest.load(data)

    def make(weight):
        def probabilities(company, miles, **_):
            logit = tf.where(company == "Blue", 3.0, tf.where(company == "Green", 0.0, -3.0))
            chance = tf.sigmoid(logit + weight * tf.minimum(miles, 3.0))
            return tf.stack([1 - chance, chance], axis=1)

        path = tmp_path_factory.mktemp("model")
        return save_model(path, manifest.inputs, manifest.class_names, probabilities)

    return make


def test_no_record_is_kept(model, evaluate, tmp_path):
    """Files that evaluation and registration write contain no value of a record."""
    table = [{**row, "company": f"secret{i}"} for i, row in enumerate(trips.rows())]
    path, accepted = model(0.3), tmp_path / "accepted.json"
    evaluation = evaluate(path, trips.make(tmp_path, table))
    evaluation["decision"]["verdict"] = "register"
    accepted.write_text(json.dumps(evaluation))
    flags = ["--registry", f"{tmp_path}/registry", "--name", "m"]
    register(["add", "--model-dir", str(path), "--evaluation", str(accepted), *flags])
    names = "evaluation/evaluation.json", "evaluation/report.html", "registry/m/1/version.json"
    for name in names:
        assert "secret" not in (tmp_path / name).read_text(), name


@pytest.mark.long
def test_few_records_never_promote(model, champion, evaluate, tmp_path):
    """A model judged by fewer than 50 records is not promoted, also if it beats the champion."""
    few, gate = trips.make(tmp_path, trips.rows(220)), tmp_path / "gate.yaml"
    gate.write_text("confidence: none\n")
    evaluation = evaluate(model(0.3), few, "--gate", gate, *champion(model(-0.5)))
    assert evaluation["champion"]["metrics"]["auc"] < evaluation["metrics"]["auc"]
    assert evaluation["decision"]["verdict"] == "register"
    why = f"not to be promoted by {evaluation['metrics']['examples']} records of test: it takes 50"
    assert why in evaluation["decision"]["why"]


def test_step_writes_every_artifact(model, data, evaluate_step, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "model").symlink_to(model(0.3))
    artifacts = evaluate_step(job, data, "--min-auc", "0.5", "--slice", "company", "miles")
    evaluation = json.loads((tmp_path / "evaluation").read_text())
    assert json.loads((job / "evaluation.json").read_text()) == evaluation
    assert evaluation["parts"].keys() == {"class", "company", "miles"}
    assert "By company, the worst first" in (tmp_path / "report").read_text()
    metrics, shown = evaluation["metrics"], artifacts["confusion"].metadata
    assert artifacts["metrics"].metadata == metrics
    assert [row["row"] for row in shown["confusionMatrix"]["rows"]] == evaluation["figures"][
        "confusion"
    ]
    assert component.gate(evaluation=artifacts["evaluation"]) == "promote"


def test_repeated_records_do_not_count(scored, make_model, evaluate, tmp_path):
    """The model is wrong on the records alone that are in the training split too."""
    files = {}
    for split, count in (("train", 200), ("t10k", len(scored.labels))):
        files[f"{split}-images-idx3-ubyte"] = idx_bytes(scored.images[:count, ..., 0])
        files[f"{split}-labels-idx1-ubyte"] = idx_bytes(scored.labels[:count].astype(np.uint8))
    source = write_files(tmp_path / "source", files)
    convert_to(tmp_path / "data", dataset="idx", source=source, validation_fraction=0.0)
    model, count = make_model(wrong=200), len(scored.labels)
    evaluation = evaluate(model, tmp_path / "data")
    assert (evaluation["repeated"], evaluation["metrics"]["examples"]) == (200, count - 200)
    assert evaluation["metrics"]["accuracy"] == 1
    note = "200 records of test are in the training split too, and"
    assert f"{note} do not count" in evaluation["decision"]["reasons"]
    evaluation = evaluate(model, tmp_path / "data", "--count-repeated")
    assert evaluation["metrics"]["accuracy"] == pytest.approx(1 - 200 / count)
    assert evaluation["decision"]["reasons"][-1] == f"{note} count"


def test_rule_is_over_best_column(data):
    records = EvalSet.load(str(data), "test")
    train, test = EvalSet.load(str(data), "train").columns, records.columns
    prior = train["label"].mean()
    chances = np.zeros(len(test["label"]))
    for company in {*test["company"]}:
        labels = train["label"][train["company"] == company]
        chances[test["company"] == company] = (labels.sum() + prior) / (len(labels) + 1)
    truth = test["label"] == 1
    rule, answers = baseline(records)
    metrics = records.task.measure(answers, test["label"])
    assert rule == "best single column, company"
    assert metrics["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(truth, chances))
    assert metrics["loss"] == pytest.approx(sklearn.metrics.log_loss(truth, chances))
