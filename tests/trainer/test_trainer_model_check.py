"""Tests of the check of the user's model, which refuses wrong ones alone."""

import dataclasses
import re

import keras
import numpy as np
import own_models
import pytest
import wrong_models
from parsed import options

from tests.errors import user_error
from trainer import model_check
from trainer.models import registry
from trainer.tasks.of_dataset import task_of


@pytest.fixture
def check(digits, images):
    """Checks a model, with metrics of its own."""

    def run(model, *metrics):
        opts = options(f"--data-dir {digits} --model {model}")
        build = dataclasses.replace(opts.builder(images), task=task_of(images, metrics=metrics))
        model_check.run(build, opts, images)

    return run


@pytest.mark.parametrize("model", wrong_models.REFUSED)
def test_wrong_model_is_refused_with_reason(check, model):
    with user_error(re.escape(wrong_models.REFUSED[model][1])):
        check(f"wrong_models:{model}")


class Kept(keras.metrics.Mean):
    """The largest output so far."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign(keras.ops.maximum(self.total, keras.ops.max(y_pred)))
        self.count.assign(1)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (Kept(name="kept"), "metric kept is not one number made of sums"),
        (keras.metrics.MeanAbsoluteError(name="step"), "a field of the journal, are called step"),
        (keras.metrics.MeanAbsoluteError(name="accuracy"), r"two metrics, .* are called accuracy"),
    ],
    ids=["kept", "reserved", "twice"],
)
def test_unsuitable_metric_is_refused(check, metric, message):
    with user_error(message):
        check("own_models:sequential", metric)


def prepare(manifest, columns):
    """The halves of an image."""
    image = keras.ops.cast(columns["image"], "float32")
    return {"upper": image[:, :4], "lower": image[:, 4:]}


def listed(manifest):
    """The inputs in another order than that of their names: nothing would fail if exchanged."""
    inputs = [keras.Input((4, 8, 1), name=name) for name in ("upper", "lower")]
    flat = keras.layers.Flatten()(keras.layers.Concatenate()(inputs))
    return keras.Model(inputs, keras.layers.Dense(10)(flat))


def test_listed_inputs_get_features_of_names(images):
    model = registry.builder(f"{__name__}:listed", images, {})()
    upper, lower = np.random.default_rng(0).random((2, 3, 4, 8, 1), np.float32)
    answers = model({"upper": upper, "lower": lower})
    inner = model.get_layer(index=-1)
    np.testing.assert_array_equal(inner([upper, lower]), answers)
    assert not np.allclose(inner([lower, upper]), answers)


def test_preparation_without_label_is_refused(check, monkeypatch):
    monkeypatch.setattr(
        own_models, "prepare", lambda manifest, columns: {"image": columns["image"]}, raising=False
    )
    with user_error("prepare leaves out the label, 'label'"):
        check("own_models:sequential")
