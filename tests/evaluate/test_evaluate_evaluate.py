"""Evaluations of models whose answers are known; bad input is one line, and nothing is written."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest

from common import provenance
from components.evaluate.__main__ import main
from trainer.job.done import Done
from trainer.tasks.of_dataset import Classification


def test_figures_equal_hand_computation(scored, make_model, evaluate):
    evaluation = evaluate(make_model(wrong=30, confidence=0.91), scored.path)
    metrics, baseline = evaluation["metrics"], evaluation["baseline"]
    count = len(scored.labels)
    assert count == metrics["examples"] > 300
    assert metrics["accuracy"] == pytest.approx((count - 30) / count)
    loss = -(count - 30) * math.log(0.91) - 30 * math.log(0.01)
    assert metrics["loss"] == pytest.approx(loss / count, abs=1e-5)
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (scored.labels, (scored.labels + (np.arange(count) < 30)) % 10), 1)
    assert evaluation["figures"]["confusion"] == confusion.tolist()
    accuracies = [part["metrics"]["accuracy"] for part in evaluation["parts"]["class"]]
    assert accuracies == sorted(accuracies) and len({*accuracies}) > 1
    splits = scored.manifest.splits
    train, test = (np.array(splits[name].class_histogram) for name in ("train", "test"))
    # The majority class of training is another one than of test.
    assert test[train.argmax()] != test.max()
    assert baseline["accuracy"] == pytest.approx(test[train.argmax()] / count)
    assert baseline["loss"] == pytest.approx(-(test * np.log(train / train.sum())).sum() / count)


def test_loss_of_accuracy_is_noted(scored, make_model, evaluate, tmp_path):
    job = tmp_path / "job"
    shutil.copytree(make_model(wrong=80), job / "model")
    facts = {"validation": {}, "examples_per_s": 1.0, "accuracy": 0.99}
    Done(step=9, epochs=1.0, loss=0.0, seconds=1.0, **facts).save(str(job))
    reasons = "\n".join(evaluate(job / "model", scored.path)["decision"]["reasons"])
    assert "training ended with accuracy 0.9900, and here it is 0.7" in reasons


@pytest.mark.parametrize(
    ("is_gone", "why"),
    [(True, "registry/m/1: no SavedModel here"), (False, "split_seed 1 and not 0, so it may know")],
)
def test_unusable_champion_is_incomparable(
    scored, make_model, evaluate, champion, tmp_path, is_gone, why
):
    arguments = {**scored.manifest.arguments, "split_seed": 1}
    model = shutil.copytree(make_model(wrong=20), tmp_path / "model")
    provenance.write(dataclasses.replace(scored.manifest, arguments=arguments), "cnn", str(model))
    flags = champion(model)
    if is_gone:
        shutil.rmtree(tmp_path / "registry/m/1")
    evaluation = evaluate(make_model(), scored.path, *flags)
    decision = evaluation["decision"]
    assert why in evaluation["champion"]["incomparable"] and decision["verdict"] == "register"
    assert "cannot be compared with the champion" in decision["reasons"][-1]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"size": 9},
            "takes {'image': 'uint8(None, 9, 9, 1)'}; dataset 'digits' has {'image': 'uint8(None, ",
        ),
        (
            {"class_names": ("T-shirt", *"123456789"), "wrong": 346},
            "says 'T-shirt' where dataset 'digits' has '0'",
        ),
        ({"confidence": float("nan")}, "probabilities that are not finite: its training diverged"),
        (
            {"outputs": ("class_index",)},
            "signature serving_default does not give class_name and probabilities",
        ),
    ],
)
def test_model_for_other_data_refused(make_model, scored, tmp_path, refused, other, message):
    model, output = make_model(**other), tmp_path / "output"
    line = refused(main, "--model-dir", model, "--data-dir", scored.path, "--output", output)
    assert line.startswith(f"error: {model}") and message in line
    assert not output.exists()


class Undefined(Classification):
    """Ranks by a metric that is no number."""

    ranking = ("odd", "accuracy")

    def measure(self, answers, labels):
        return {**super().measure(answers, labels), "odd": np.float32(math.inf)}


def undefined(manifest):
    return Undefined(manifest.class_names)


def test_undefined_metric_is_null(scored, make_model, evaluate_step, tmp_path):
    model = shutil.copytree(make_model(wrong=30), tmp_path / "job/model")
    provenance.write(scored.manifest, "m", str(model), task=f"{__name__}:undefined")
    metrics = evaluate_step(tmp_path / "job", scored.path)["metrics"].metadata
    evaluation = json.loads((tmp_path / "evaluation").read_text(), parse_constant=pytest.fail)
    (part, *_) = evaluation["parts"]["class"]
    for figures in (evaluation["metrics"], evaluation["baseline"], part["metrics"]):
        assert figures["odd"] is None
    assert evaluation["decision"]["verdict"] == "reject"
    assert "odd" not in metrics and "accuracy" in metrics
    assert "<td>-</td>" in (tmp_path / "report").read_text()
