"""What the check of the user's model refuses, and that it leaves right ones alone."""

import dataclasses

import keras
import numpy as np
import own_models
import pytest
import wrong_models

from common.errors import UserError
from common.manifest import Manifest
from trainer import model_check, options
from trainer.models import registry
from trainer.tasks.of_dataset import task_of
from trainer.tasks.task import Task


def tried(data, model: str, *flags: str, task: Task | None = None) -> None:
    manifest = Manifest.load(data)
    opts = options.parse(
        [f"--data-dir={data}", "--job-dir=j", "--train-steps=1", f"--model={model}", *flags], {}
    )
    build = registry.builder(opts.model, manifest, opts.network)
    model_check.run(dataclasses.replace(build, task=task or build.task), opts, manifest)


def refusal(data, model, **options) -> str:
    with pytest.raises(UserError) as refused:
        tried(data, f"wrong_models:{model}", **options)
    assert "\n" not in str(refused.value)
    return str(refused.value).lower()


@pytest.mark.parametrize("model", wrong_models.REFUSED)
def test_what_would_be_wrong_is_refused_with_the_reason(digits, model):
    assert wrong_models.SAID[model] in refusal(digits, model)


def test_metric_of_a_reserved_name_refused(digits):
    for name in ("step", "seconds", "examples_per_s"):
        with pytest.raises(UserError, match=f"a field of the journal, are called {name}"):
            task_of(Manifest.load(digits), metrics=[keras.metrics.MeanAbsoluteError(name=name)])


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
    "combine",
    [
        lambda value, batch: max(value, *batch),
        lambda value, batch: value + sum(batch) / len(batch),
    ],
    ids=["largest", "means_of_batches"],
)
def test_metric_of_no_sums_refused(digits, combine):
    task = task_of(Manifest.load(digits), metrics=[Kept(combine)])
    with pytest.raises(UserError, match="metric kept is not one number made of sums over examples"):
        tried(digits, "own_models:sequential", task=task)


@pytest.mark.cluster
def test_inputs_of_a_list_get_the_features_of_their_names(digits):
    tried(digits, "two_inputs:network")
    manifest = Manifest.load(digits)
    model = registry.builder("two_inputs:network", manifest, {})()
    upper, lower = (np.random.default_rng(i).random((3, 4, 8, 1), np.float32) for i in range(2))
    answers = model({"upper": upper, "lower": lower})
    listed = model.get_layer(index=-1)
    np.testing.assert_array_equal(listed([upper, lower]), answers)
    assert not np.allclose(listed([lower, upper]), answers)


def test_preparation_without_the_label_refused(digits, monkeypatch):
    monkeypatch.setattr(
        own_models, "prepare", lambda _, columns: {"image": columns["image"]}, raising=False
    )
    with pytest.raises(UserError, match="prepare leaves out the label, 'label'"):
        tried(digits, "own_models:sequential")
