"""A table with two classes is judged by the area under the ROC curve."""

import json

import pytest
import tensorflow as tf
import trips

from common.manifest import Manifest
from components.convert.options import Options
from components.evaluate import component
from components.evaluate.eval_set import EvalSet
from components.evaluate.score import load, predict
from components.register.__main__ import main as register
from tests.convert.dataset_files import write_records
from tests.rides import convert_quietly


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    """Writes a model that predicts by company and, by the weight `miles`, by distance."""
    manifest = Manifest.load(data)

    def make(miles):
        def serve(**features):
            company = features["company"]
            logit = tf.where(company == "Blue", 3.0, tf.where(company == "Green", 0.0, -3.0))
            chance = tf.sigmoid(logit + miles * tf.minimum(features["miles"], 3.0))
            probabilities = tf.stack([1 - chance, chance], axis=1)
            index = tf.argmax(probabilities, axis=1)
            names = tf.gather(manifest.class_names, index)
            return {"probabilities": probabilities, "class_index": index, "class_name": names}

        specs = {f.name: tf.TensorSpec([None], f.dtype, f.name) for f in manifest.inputs}
        signature = tf.function(serve).get_concrete_function(**specs)
        path = tmp_path_factory.mktemp("model")
        signatures = {"serving_default": signature}
        tf.saved_model.save(tf.Module(), str(path), signatures=signatures)
        return path

    return make


@pytest.mark.long
def test_auc_decides_against_best_column(model, data, evaluate, tmp_path):
    flags = ["--min-auc", 0.75, "--slice", "company", "miles"]
    evaluation = evaluate(model(0.3), data, *flags)
    assert evaluation["metric"] == "auc" and evaluation["gate"]["thresholds"] == {"auc": 0.75}
    auc = evaluation["metrics"]["auc"]
    decision = evaluation["decision"]
    assert decision["verdict"] == "promote"
    rival = f"the best single column, company, {evaluation['baseline']['auc']:.4f}"
    assert f"auc {auc:.4f} beats {rival} (p 0." in "\n".join(decision["reasons"])
    assert evaluation["parts"].keys() == {"class", "company", "miles"}
    for parts in evaluation["parts"].values():
        assert sum(part["records"] for part in parts) == evaluation["metrics"]["examples"]
    page = (tmp_path / "evaluation/report.html").read_text()
    for text in ("ROC curve", "precision and recall", "By company, the worst first"):
        assert text in page
    assert evaluate(model(-0.5), data)["decision"]["verdict"] == "reject"


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


def make_with_own_test(directory, **splits):
    """Converts files of `train` and `test` rows, which keep their splits; returns the dataset."""
    schema = trips.write(directory, splits["train"])["schema"]
    for split, rows in splits.items():
        records = []
        for row in rows:
            row = {**row, "company": row["company"].encode(), "tip": row["tip"].encode()}
            records.append({name: () if value == "" else value for name, value in row.items()})
        write_records(directory / "in" / f"{split}.tfrecord", records)
    place = {"source": f"{directory}/in", "output": f"{directory}/data"}
    convert_quietly(Options(dataset="tfrecord", schema=schema, **place))
    return directory / "data"


@pytest.mark.long
def test_repeated_records_do_not_count(model, evaluate, tmp_path):
    path, table = model(0.3), trips.rows(900)
    data = make_with_own_test(tmp_path / "trips", train=table[:660], test=table[600:])
    records = EvalSet.load(str(data), "test")
    answers, repeated = predict(load(str(path), records), records), records.repeated
    total, count = len(repeated), repeated.sum()
    assert 50 <= total - count < total
    evaluation = evaluate(path, data)
    assert (evaluation["repeated"], evaluation["metrics"]["examples"]) == (count, total - count)
    assert evaluation["metrics"]["auc"] == pytest.approx(answers.of(~repeated).measure()["auc"])
    note = f"{count} records of test are in the training split too, and"
    assert f"{note} do not count" in evaluation["decision"]["reasons"]
    evaluation = evaluate(path, data, "--count-repeated")
    assert evaluation["metrics"]["auc"] == pytest.approx(answers.measure()["auc"])
    assert evaluation["decision"]["reasons"][-1] == f"{note} count"


def test_step_writes_every_artifact(model, data, evaluate_step, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "model").symlink_to(model(0.3))
    artifacts = evaluate_step(job, data, "--min-auc", "0.5")
    assert artifacts["output"] == f"{job}/model"
    evaluation = json.loads((tmp_path / "evaluation").read_text())
    assert json.loads((job / "evaluation.json").read_text()) == evaluation
    metrics, shown = evaluation["metrics"], artifacts["confusion"].metadata
    assert artifacts["metrics"].metadata == metrics
    assert [row["row"] for row in shown["confusionMatrix"]["rows"]] == evaluation["figures"][
        "confusion"
    ]
    assert len(shown["confidenceMetrics"]) == len(evaluation["figures"]["roc"])
    assert "Confusion matrix" in (tmp_path / "report").read_text()
    assert f"| {metrics['auc']:.4f} |" in (tmp_path / "summary").read_text()
    assert component.gate(evaluation=artifacts["evaluation"]) == "promote"
    assert (tmp_path / "confusion").exists() and not (tmp_path / "registry").exists()
