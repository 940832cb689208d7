"""A table with two classes is judged by the area under the ROC curve."""

import json
import pathlib
import re
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import trips
from kfp import dsl

from common.errors import UserError
from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from components.evaluate import component
from components.evaluate.__main__ import main
from components.evaluate.eval_set import EvalSet
from components.evaluate.score import load, predict
from components.register.__main__ import main as register
from components.register.directory import DirectoryRegistry
from trainer.data import records

BEST = {"Blue": 3.0, "Green": 0.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return trips.make(tmp_path_factory.mktemp("trips"))


@pytest.fixture(scope="module")
def model(data, tmp_path_factory) -> Callable[..., pathlib.Path]:
    """Writes a model that goes by company and, for so much, by miles."""
    manifest = Manifest.load(data)
    specs = [tf.TensorSpec([None], feature.dtype, name=feature.name) for feature in manifest.inputs]

    def make(miles: float) -> pathlib.Path:
        def serve(**features: tf.Tensor) -> dict[str, tf.Tensor]:
            of_company = tf.add_n([tf.where(features["company"] == k, v + 3.0, 0.0) for k, v in BEST.items()]) - 3.0
            chance = tf.sigmoid(of_company + miles * tf.minimum(features["miles"], 3.0))
            probabilities = tf.stack([1 - chance, chance], axis=1)
            index = tf.argmax(probabilities, axis=1)
            names = tf.gather(tf.constant(manifest.class_names), index)
            return {"probabilities": probabilities, "class_index": index, "class_name": names}

        module = tf.Module()
        module.serve = tf.function(serve)
        signature = module.serve.get_concrete_function(**{spec.name: spec for spec in specs})
        path = tmp_path_factory.mktemp("model")
        tf.saved_model.save(module, str(path), signatures={"serving_default": signature})
        return path

    return make


def evaluate(model: pathlib.Path, data: pathlib.Path, output: pathlib.Path, *flags: object) -> dict:
    main(["--model-dir", str(model), "--data-dir", str(data), "--output", str(output), *map(str, flags)])
    return json.loads((output / "evaluation.json").read_text())


def test_auc_decides_against_best_column(model, data, tmp_path):
    found = evaluate(model(0.3), data, tmp_path, "--min-auc", 0.75, "--min-accuracy", 0.5)
    assert found["metric"] == "auc" and found["gate"]["thresholds"] == {"auc": 0.75, "accuracy": 0.5}
    misses, hits, _ = np.transpose(found["figures"]["roc"])
    ours, least = found["metrics"]["auc"], found["baseline"]["auc"]
    assert np.trapezoid(hits, misses) == pytest.approx(ours, abs=1e-3)
    assert found["decision"]["verdict"] == "promote"
    words = f"auc {ours:.4f} beats the best single column, company, {least:.4f} (p 0."
    assert any(reason.startswith(words) for reason in found["decision"]["reasons"])
    page = (tmp_path / "report.html").read_text()
    plots = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert plots == ["ROC curve", "precision and recall"]
    assert evaluate(model(-0.5), data, tmp_path)["decision"]["verdict"] == "reject"


def test_no_record_is_kept(model, tmp_path):
    """No value of a record is in a file that evaluation or registration writes."""
    table = [{**row, "company": f"secret{i}"} for i, row in enumerate(trips.rows())]
    data, registry = trips.make(tmp_path / "data", table), ["--registry", str(tmp_path / "r"), "--name", "m"]
    found = evaluate(kept := model(0.3), data, tmp_path / "out")
    evaluation = {**found, "decision": {"verdict": "register", "reasons": []}}
    (tmp_path / "accepted.json").write_text(json.dumps(evaluation))
    register(["add", "--model-dir", str(kept), "--evaluation", str(tmp_path / "accepted.json"), *registry])
    places = tmp_path / "out", tmp_path / "r" / "m" / "1"
    files = [path for place in places for path in place.iterdir() if path.suffix in (".json", ".html")]
    assert {"evaluation.json", "report.html", "version.json"} <= {path.name for path in files}
    assert len(found["answered"]["answers"]) == 16
    for path in files:
        assert "secret" not in path.read_text(), path


@pytest.mark.parametrize("gate", ["confidence: 0.5\n", "confidence: none\n"])
def test_few_records_never_promote(gate, data, model, tmp_path):
    """However good a model is on fewer than 50 records, with or without a champion, it is registered at most."""
    few = trips.make(tmp_path / "few", trips.rows(220))
    (tmp_path / "gate.yaml").write_text(gate)
    flags = ["--gate", tmp_path / "gate.yaml", "--registry", tmp_path / "registry", "--name", "trips"]
    found = evaluate(model(0.3), few, tmp_path / "first", *flags)
    records = found["metrics"]["examples"]
    assert records < 50 and found["decision"]["verdict"] == "register"
    assert f"not to be promoted by {records} records of test: it takes 50" in found["decision"]["why"]
    registry = DirectoryRegistry(str(tmp_path / "registry"))
    registry.promote("trips", registry.register("trips", str(model(-0.5)), {}), instead_of=None)
    found = evaluate(model(0.3), few, tmp_path / "second", *flags)
    assert found["champion"]["metrics"]["auc"] < found["metrics"]["auc"]
    assert found["decision"]["verdict"] == "register" and "it takes 50" in found["decision"]["why"]


def test_slices_are_shown(model, data, refused, tmp_path):
    found = evaluate(model(0.3), data, tmp_path, "--slice", "company", "miles")
    worst, *_, best = found["parts"]["company"]
    columns = records.load(Manifest.load(data), str(data), "test")
    for part in (worst, best):
        assert part["records"] == (columns["company"].numpy() == part["value"].encode()).sum()
    assert sum(part["records"] for part in found["parts"]["miles"]) == found["metrics"]["examples"]
    assert len(found["parts"]["miles"]) == 4 and [part["value"] for part in found["parts"]["class"]]
    page = (tmp_path / "report.html").read_text()
    assert "By company, the worst first" in page
    flags = ["--model-dir", model(0.3), "--data-dir", data, "--output", tmp_path / "other"]
    assert "'mile'; did you mean 'miles'" in refused(main, *flags, "--slice", "mile")


def _make_with_own_test(directory: pathlib.Path, train: list[dict], test: list[dict]) -> pathlib.Path:
    """Makes a dataset whose source has its own test split; returns its directory."""
    flags = trips.write(directory, train)
    kinds = {int: "int64_list", float: "float_list", str: "bytes_list"}
    for split, rows in (("train", train), ("test", test)):
        with tf.io.TFRecordWriter(str(directory / f"{split}.tfrecord")) as writer:
            for row in rows:
                features = {
                    name: {kinds[type(value)]: {"value": [value.encode() if isinstance(value, str) else value]}}
                    for name, value in row.items()
                    if value != ""
                }
                writer.write(tf.train.Example(features={"feature": features}).SerializeToString())
    files = tuple(str(directory / f"{split}.tfrecord") for split in ("train", "test"))
    convert(Options(dataset="tfrecord", source=files, schema=flags["schema"], output=str(directory / "data")))
    return directory / "data"


def test_repeated_records_do_not_count(model, tmp_path):
    good, table = str(model(0.3)), trips.rows(900)
    data = _make_with_own_test(tmp_path / "trips", table[:660], table[600:])
    there = EvalSet.load(str(data), "test")
    answers, new = predict(load(good, there), there), ~there.repeated
    assert 50 <= new.sum() < len(new)
    found = evaluate(good, data, tmp_path)
    assert (found["repeated"], found["metrics"]["examples"]) == ((~new).sum(), new.sum())
    assert found["metrics"]["auc"] == pytest.approx(answers.of(new).measure()["auc"])
    assert found["decision"]["reasons"][-2:] == [
        f"{(~new).sum()} records of test are in the training split too, and do not count",
        f"judged by the {new.sum()} of {len(new)} records of test that it was not trained on",
    ]
    found = evaluate(good, data, tmp_path, "--count-repeated")
    assert found["metrics"]["auc"] == pytest.approx(answers.measure()["auc"])
    assert (
        found["decision"]["reasons"][-1] == f"{(~new).sum()} records of test are in the training split too, and count"
    )
    few = _make_with_own_test(tmp_path / "few", table[:60], table[:60])
    with pytest.raises(UserError, match=r"takes 50; .*with --count-repeated: \d+ are equal to training records"):
        evaluate(good, few, tmp_path)


def test_step_writes_every_artifact(model, data, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "model").symlink_to(model(0.3))
    kinds = {"evaluation": dsl.Artifact, "metrics": dsl.Metrics, "confusion": dsl.ClassificationMetrics}
    kinds |= {"model": dsl.Model, "report": dsl.HTML, "summary": dsl.Markdown}
    artifacts = {name: kind(name=name, uri=str(tmp_path / name)) for name, kind in kinds.items()}
    told = component.evaluate(
        job_dir=f"{job}/",
        registry=str(tmp_path / "registry"),
        name="trips",
        evaluate_args=["--min-auc", "0.5"],
        dataset=dsl.Dataset(name="dataset", uri=str(data)),
        **artifacts,
    )
    assert told == artifacts["model"].uri == str(job / "model")
    written = json.loads((tmp_path / "evaluation").read_text())
    assert artifacts["metrics"].metadata == json.loads((tmp_path / "metrics").read_text()) == written["metrics"]
    shown = artifacts["confusion"].metadata
    assert [row["row"] for row in shown["confusionMatrix"]["rows"]] == written["figures"]["confusion"]
    curve = [[p["falsePositiveRate"], p["recall"], p["confidenceThreshold"]] for p in shown["confidenceMetrics"]]
    assert curve == written["figures"]["roc"]
    assert "Confusion matrix" in (tmp_path / "report").read_text()
    summary = (tmp_path / "summary").read_text()
    assert "| candidate | " in summary and f"| {written['metrics']['auc']:.4f} |" in summary
    assert component.gate(evaluation=artifacts["evaluation"]) == "promote"
    assert not (tmp_path / "registry").exists()
