"""Tests of the check of the user's model, which refuses wrong ones alone."""

import dataclasses

import keras
import numpy as np
import own_models
import pytest
import tensorflow as tf
import wrong_models
from parsed import options

from common.errors import UserError
from trainer import model_check
from trainer.models import registry
from trainer.tasks.of_dataset import MultiLabel, task_of


@pytest.fixture
def check(digits, images):
    """Checks a model, with metrics of its own."""

    def run(model: str, *metrics: keras.metrics.Metric) -> None:
        opts = options(f"--data-dir {digits} --model {model}")
        build = opts.builder(images)
        build = dataclasses.replace(build, task=task_of(images, metrics=metrics))
        model_check.run(build, opts, images)

    return run


@pytest.mark.parametrize("model", wrong_models.REFUSED)
def test_wrong_model_is_refused_with_reason(check, model):
    with pytest.raises(UserError) as refused:
        check(f"wrong_models:{model}")
    assert wrong_models.REFUSED[model][1] in str(refused.value)
    assert "\n" not in str(refused.value)


class Kept(keras.metrics.Metric):
    """A variable that becomes what a function makes of it and of the outputs of a batch."""

    def __init__(self, combine):
        super().__init__(name="kept")
        self.combine, self.value = combine, self.add_weight(initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(self.combine(self.value, y_pred[:, 0]))

    def result(self):
        return self.value


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            Kept(lambda value, batch: max(value, *batch)),
            "metric kept is not one number made of sums",
        ),
        (keras.metrics.MeanAbsoluteError(name="step"), "a field of the journal, are called step"),
        (keras.metrics.MeanAbsoluteError(name="accuracy"), r"two metrics, .* are called accuracy"),
    ],
    ids=["kept", "reserved", "twice"],
)
def test_unsuitable_metric_is_refused(check, metric, message):
    with pytest.raises(UserError, match=message):
        check("own_models:sequential", metric)


def test_metric_of_each_label_is_refused():
    task = MultiLabel(("a", "b"), metrics=[keras.metrics.F1Score()])
    with pytest.raises(UserError, match="metric f1_score is not one number"):
        model_check.check_metrics(task, tf.constant([[0, 1]] * 2), tf.constant([[0.1, 0.2]] * 2))


def test_listed_inputs_get_features_of_names(images):
    model = registry.builder("two_inputs:network", images, {})()
    upper, lower = (np.random.default_rng(i).random((3, 4, 8, 1), np.float32) for i in range(2))
    answers = model({"upper": upper, "lower": lower})
    listed = model.get_layer(index=-1)
    np.testing.assert_array_equal(listed([upper, lower]), answers)
    assert not np.allclose(listed([lower, upper]), answers)


def test_preparation_without_label_is_refused(check, monkeypatch):
    def prepare(manifest, columns):
        return {"image": columns["image"]}

    monkeypatch.setattr(own_models, "prepare", prepare, raising=False)
    with pytest.raises(UserError, match="prepare leaves out the label, 'label'"):
        check("own_models:sequential")
