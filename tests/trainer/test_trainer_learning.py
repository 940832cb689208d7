"""Tests of optimizers, schedules and settings that flags give."""

import dataclasses
import types

import keras
import own_models
import pytest
import tensorflow as tf
from parsed import options

from tests.errors import user_error
from trainer import learning

L = keras.layers


def optimizer(flags):
    model = keras.Sequential([keras.Input((3,)), L.Dense(2)])
    manifest = types.SimpleNamespace(name="none is looked at")
    size = learning.TrainingSize(examples=100, batch=10, horizon=20)
    return learning.optimizer(options(flags), model, manifest, size)


@pytest.mark.parametrize(
    ("flags", "rate"),
    [("cnn", 0), ("cnn --optimizer adamw", 0.004), ("resnet --optimizer adamw", 2e-4)],
)
def test_weight_decay_default_follows_optimizer(flags, rate):
    opts = options(f"--model {flags}")
    assert learning.settings(opts)["weight_decay"] == rate
    assert learning.settings(dataclasses.replace(opts, weight_decay=0.0))["weight_decay"] == 0


def test_adamw_decays_weights_once():
    opts = options("--model cnn --optimizer adamw --weight-decay 0.5")
    factor, _ = learning.decay(opts, keras.Sequential([keras.Input((3,)), L.Dense(2)]))
    assert factor == 0


def test_longer_job_keeps_first_schedule(images):
    opts = options("--train-steps 20")
    for first_start, horizon in (({}, 20), ({"horizon_steps": 10}, 10)):
        size = learning.training_size(opts, images, first_start, replicas=1)
        assert (size.last_step, size.horizon) == (20, horizon)


@pytest.mark.parametrize(
    ("layer", "kernels"),
    [
        (L.SeparableConv1D(4, 2), ["depthwise_kernel", "pointwise_kernel"]),
        (L.RNN([L.LSTMCell(3), L.GRUCell(2)]), ["kernel", "recurrent_kernel"] * 2),
        (L.BatchNormalization(), []),
    ],
)
def test_only_kernels_decay(layer, kernels):
    layer.build((2, 8, 4))
    _, decayed = learning.decay(options("--model cnn"), layer)
    assert [variable.name for variable in decayed] == kernels


@pytest.fixture
def own(monkeypatch):
    """Gives the module of a user's model an optimizer, and makes that."""

    def make(function, flags=""):
        monkeypatch.setattr(own_models, "optimizer", function, raising=False)
        return optimizer(f"--model own_models:sequential {flags}")

    return make


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda sgd, schedule: sgd(0.1), "does not take the schedule"),
        (lambda sgd, schedule: sgd(schedule, use_ema=True), "uses use_ema"),
    ],
    ids=["rate", "average"],
)
def test_unsuitable_own_optimizer_is_error(own, wrap, message):
    expected = rf"own_models:sequential: its optimizer\(manifest, schedule\) .*{message}"
    with user_error(expected):
        own(lambda manifest, schedule: wrap(keras.optimizers.SGD, schedule))


@pytest.mark.parametrize(
    ("model", "flags", "message"),
    [
        ("cnn", "--momentum 0.5", "--momentum is for jobs whose optimizer is sgd, and .* is adam"),
        ("cnn", "--boundaries-epochs 1 --factors 1,2", "is for jobs whose schedule is piecewise"),
        ("own_models:sequential", "--optimizer sgd", "--optimizer is for .* is the model's own"),
    ],
)
def test_meaningless_option_is_error(monkeypatch, model, flags, message):
    monkeypatch.setattr(own_models, "optimizer", keras.optimizers.SGD, raising=False)
    with user_error(message):
        optimizer(f"--model {model} {flags}")


def test_own_clipping_on_replicas_is_error(own, monkeypatch):
    def clipping(manifest, schedule):
        return keras.optimizers.SGD(schedule, global_clipnorm=1.0)

    made = own(clipping, "--learning-rate 0.5 --warmup-steps 5")
    assert made.built and float(made.learning_rate) == pytest.approx(0.1)
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    with user_error("uses global_clipnorm, which on several"):
        own(clipping)
