import dataclasses
import types

import keras
import own_models
import pytest
import tensorflow as tf

from common.errors import UserError
from trainer import learning
from trainer.options import Options, parse

RESNET = ("num_layers", "batch_norm_decay", "batch_norm_epsilon")
WIDE_DEEP = ("hidden_units", "dropout")
MANIFEST = types.SimpleNamespace(name="none is looked at")


def options(*flags: str) -> Options:
    return parse(["--data-dir", "d", "--job-dir", "j", "--train-steps", "10", *flags], {})


def optimizer(*flags: str):
    layers = [keras.layers.Dense(2, name=name) for name in ("body", "head")]
    model = keras.Sequential([keras.Input((3,)), *layers])
    return learning.optimizer(
        options(*flags), model, MANIFEST, learning.TrainingSize(examples=100, batch=10, horizon=20)
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--model", "cnn", "--momentum", "0.5"],
            "--momentum is for jobs whose optimizer is sgd, and .* is adam; leave",
        ),
        (
            ["--model", "cnn", "--boundaries-epochs", "1", "--factors", "1,2"],
            "is for jobs whose schedule is piecewise",
        ),
    ],
)
def test_meaningless_option_is_error(flags, message):
    with pytest.raises(UserError, match=message):
        optimizer(*flags)


@pytest.mark.parametrize(
    ("flags", "expected", "meaningless"),
    [
        (
            ["--model", "cnn"],
            {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": 0.0, "schedule": "constant", "horizon_steps": "none"}
            | {"batch_size": 64, "seed": 0, "augment": "none", "strategy": "synchronous"},
            {"momentum", "factors", "boundaries_epochs", *RESNET, *WIDE_DEEP},
        ),
        (
            ["--model", "resnet", "--num-layers", "20", "--seed", "7"],
            {"optimizer": "sgd", "momentum": 0.9, "num_layers": 20, "batch_norm_decay": 0.997, "schedule": "piecewise"}
            | {"seed": 7, "augment": "crop_flip"},
            {*WIDE_DEEP},
        ),
    ],
)  # fmt: skip
def test_settings_are_those_of_job(flags, expected, meaningless):
    opts = options(*flags)
    found = learning.settings(opts, learning.TrainingSize(batch=64, horizon=7))
    assert None not in found.values() and expected.items() <= found.items()
    # The options of a model of one's own are there by their names.
    assert found.keys() == {*opts.identity(), "horizon_steps"} - {"model_options"}
    assert {found[name] for name in meaningless} == {"none"}


def test_weight_decay_default_follows_optimizer():
    for flags, expected in (
        ("cnn", 0),
        ("cnn --optimizer adamw", 0.004),
        ("resnet --optimizer adamw", 2e-4),
    ):
        opts = options("--model", *flags.split())
        assert learning.settings(opts)["weight_decay"] == expected
        assert learning.settings(dataclasses.replace(opts, weight_decay=0.0))["weight_decay"] == 0


def test_momentum_defaults_to_0_9():
    assert optimizer("--model", "resnet").momentum == 0.9
    assert optimizer("--model", "resnet", "--momentum", "0").momentum == 0
    assert optimizer("--model", "cnn", "--optimizer", "sgd", "--momentum", "0.5").momentum == 0.5


def test_falling_schedules_end_at_the_horizon():
    size = learning.TrainingSize(horizon=20)
    for name, falls in (("linear", True), ("cosine", True), ("constant", False)):
        found = learning.settings(options("--model", "cnn", "--schedule", name), size)
        assert found["horizon_steps"] == (20 if falls else "none")
        rate = optimizer("--model", "cnn", "--schedule", name)._learning_rate
        assert float(rate(0)) == pytest.approx(1e-3) and float(rate(20)) == pytest.approx(
            0 if falls else 1e-3
        )


@pytest.fixture
def own(monkeypatch):
    """Gives the module of a user's model an optimizer, and makes that."""

    def make(function, *flags: str) -> keras.optimizers.Optimizer:
        monkeypatch.setattr(own_models, "optimizer", function, raising=False)
        return optimizer("--model", "own_models:sequential", *flags)

    return make


def test_own_optimizer_takes_schedule(own):
    made = own(
        lambda _, schedule: keras.optimizers.Lion(schedule),
        "--learning-rate",
        "0.5",
        "--warmup-steps",
        "5",
    )
    assert isinstance(made, keras.optimizers.Lion) and made.built
    assert float(made._learning_rate(0)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda manifest, schedule: keras.optimizers.SGD(0.1), "does not take the schedule"),
        (lambda manifest, schedule: schedule, "gives a Schedule"),
        (
            lambda _, schedule: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(schedule)),
            "no other inside",
        ),
        (lambda manifest, schedule: keras.optimizers.SGD(schedule, use_ema=True), "uses use_ema"),
        (
            lambda manifest, schedule: keras.optimizers.SGD(
                schedule, gradient_accumulation_steps=2
            ),
            "uses gradient_acc",
        ),
        (
            lambda manifest, schedule: keras.optimizers.SGD(schedule, loss_scale_factor=2.0),
            "uses loss_scale_factor",
        ),
    ],
)
def test_unsuitable_own_optimizer_is_error(own, function, message):
    with pytest.raises(
        UserError, match=rf"own_models:sequential: its optimizer\(manifest, schedule\) .*{message}"
    ):
        own(function)


def test_own_clipping_on_replicas_is_error(own, monkeypatch):
    def clipping(manifest, schedule):
        return keras.optimizers.SGD(schedule, global_clipnorm=1.0)

    assert own(clipping).global_clipnorm == 1
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    with pytest.raises(UserError, match="uses global_clipnorm, which on several"):
        own(clipping)


@pytest.mark.parametrize(
    "flags", [("--optimizer", "sgd"), ("--momentum", "0.5"), ("--clip-norm", "1")]
)
def test_flags_beside_own_optimizer_are_error(own, flags):
    with pytest.raises(
        UserError, match=f"{flags[0]} is for jobs whose optimizer is .* is the model's own"
    ):
        own(lambda manifest, schedule: keras.optimizers.SGD(schedule), *flags)
