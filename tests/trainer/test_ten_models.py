"""Losses and metrics of training and validation agree with plain Keras, on any number of replicas."""

import dataclasses
import json
from unittest import mock

import keras
import numpy as np
import pytest
import ten_models
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from test_trainer_any_model import trained
from trainer_jobs import CLUSTERS

from common.manifest import Manifest
from trainer.data import example_weights, records
from trainer.evaluation import Validator
from trainer.models import registry
from trainer.models.registry import Builder
from trainer.nn import weights
from trainer.options import parse
from trainer.tasks.task import state_of
from trainer.train_step import TrainStep

BATCH, EVAL_BATCH = 40, 16


def builder(data, model: str) -> Builder:
    """The builder of a model whose examples are weighted by their class."""
    manifest = Manifest.load(data)
    build = registry.builder(f"ten_models:{model}", manifest, {})
    prepare = example_weights.weighted(build.prepare, manifest, ("yes=0.5",))
    return dataclasses.replace(build, prepare=prepare)


def columns(data, build: Builder, split: str) -> dict[str, np.ndarray]:
    prepared = build.prepare(records.load(Manifest.load(data), str(data), split))
    return {name: column.numpy() for name, column in prepared.items()}


def of_keras(model: keras.Model) -> keras.Model:
    """The same model as users of Keras write it."""
    numbers = keras.Input((5,))
    whole = keras.Model(numbers, keras.layers.Activation("sigmoid")(model({"numbers": numbers})))
    metrics = [
        keras.metrics.BinaryAccuracy("accuracy"),
        keras.metrics.AUC(name="auc"),
        *ten_models.metrics(),
    ]
    whole.compile(
        keras.optimizers.SGD(0.1, 0.9), "binary_crossentropy", metrics=metrics, run_eagerly=True
    )
    return whole


def evaluated(model: keras.Model, data, build: Builder) -> dict[str, float]:
    """Keras' score of the validation split, in which each example counts once."""
    split = columns(data, build, "validation")
    options = {"batch_size": EVAL_BATCH, "return_dict": True, "verbose": 0}
    return model.evaluate(split["numbers"], split["label"][:, None], **options)


@pytest.mark.parametrize("model", ["masked", "embedded", "shared", "normalised"])
def test_model_agrees_with_keras(trips_data, model):
    build = builder(trips_data, model)
    ours, theirs = build(), build()
    ours.set_weights(theirs.get_weights())
    theirs = of_keras(theirs)
    split = columns(trips_data, build, "train")
    split = {name: column[: len(column) // BATCH * BATCH] for name, column in split.items()}
    fit = {
        "sample_weight": split[example_weights.WEIGHT],
        "batch_size": BATCH,
        "shuffle": False,
        "verbose": 0,
    }
    history = theirs.fit(split["numbers"], split["label"][:, None], **fit).history
    optimizer = keras.optimizers.SGD(0.1, 0.9)
    optimizer.build(ours.trainable_variables)
    step = TrainStep(
        model=ours, optimizer=optimizer, task=build.task, label="label", global_batch=BATCH, seed=0
    )
    take = tf.function(lambda batch: step(batch, tf.constant(0, tf.int64), 0, BATCH))
    sums = np.array(
        [take(batch) for batch in tf.data.Dataset.from_tensor_slices(split).batch(BATCH)]
    )
    seen = {"loss": sums[:, 0].mean(), **build.task.results(sums[:, 1:].sum(axis=0))}
    assert seen == pytest.approx({name: value for name, (value,) in history.items()}, rel=1e-4)
    flags = [
        "--data-dir",
        str(trips_data),
        "--job-dir",
        "j",
        "--train-steps",
        "1",
        "--model",
        f"ten_models:{model}",
    ]
    opts, manifest = (
        parse([*flags, "--eval-batch-size", str(EVAL_BATCH)], {}),
        Manifest.load(trips_data),
    )
    one = tf.distribute.get_strategy()
    validator = Validator(
        opts, opts.builder(manifest), manifest, scores=None, journal=mock.Mock(), strategy=one
    )
    score = validator.score(
        {name: weight.numpy() for name, weight in weights.named(ours).items()}, lambda: False
    )
    expected = evaluated(theirs, trips_data, build)
    assert {name: score[name] for name in expected} == pytest.approx(expected, rel=1e-4)


@given(st.data())
def test_metric_states_add_up(data):
    """Metrics of all batches together are Keras' of all examples, whatever the batches."""
    numbers = st.lists(st.integers(1, 9), min_size=12, max_size=12)
    labels, predictions = (np.array(data.draw(numbers), np.float32) for _ in range(2))
    batches = np.split(np.arange(12), sorted(data.draw(st.sets(st.integers(1, 11), max_size=4))))
    metric = data.draw(st.sampled_from(ten_models.metrics()[:-1]))
    examples = (labels > 5)[:, None], predictions[:, None] / 10
    states = [state_of(metric, *(column[batch] for column in examples)) for batch in batches]
    sums = [tf.add_n(variable) for variable in zip(*states, strict=True)]
    metric.update_state(*examples)
    assert float(metric.stateless_result(sums)) == pytest.approx(float(metric.result()), rel=1e-5)


@pytest.mark.cluster
def test_replicas_agree_with_keras(make, trips_data):
    build = builder(trips_data, "masked")
    flags = [
        "--model",
        "ten_models:masked",
        "--batch-size",
        33,
        "--eval-batch-size",
        EVAL_BATCH,
        "--deterministic",
    ]
    flags += ["--class-weights", "yes=0.5", "--train-steps", 12]
    first_steps = []
    for roles, more in CLUSTERS.values():
        job = make(data=trips_data)
        job.run(*roles, flags=[*flags, *more])
        first_steps.append(next(event for event in job.events() if event["event"] == "step"))
        expected = evaluated(of_keras(trained(job, build(), 12)), trips_data, build)
        latest = json.loads((job.directory / "validation.json").read_text())["latest"]
        assert {name: latest[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    shown = [{name: step[name] for name in expected} for step in first_steps]
    assert shown == [pytest.approx(shown[0], rel=1e-4)] * len(CLUSTERS)
