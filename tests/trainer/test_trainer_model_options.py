"""Options of a model of the user's own: keywords of its functions are flags."""

import re

import pytest
from parsed import options

from tests.errors import user_error
from trainer import learning
from trainer.models import registry

MODEL = """
import keras
from trainer.tasks.of_dataset import task_of

def net(manifest, *, width=16, act="relu", wide=False, share=0.5, num_layers=1, copy=()):
    image = manifest.feature("image")
    layers = [keras.Input(image.shape), keras.layers.Flatten()]
    layers += [keras.layers.Dense(width * (1 + wide), act) for _ in range(num_layers)]
    return keras.Sequential([*layers, keras.layers.Dense(manifest.outputs)])

def optimizer(manifest, schedule, *, eps=1e-7):
    return keras.optimizers.Adam(schedule, epsilon=eps)

def task(manifest, *, rank="accuracy", share=0.5):
    return task_of(manifest, rank_by=rank)
"""
NET = "--model own_options:net"


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_options.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)


def test_own_options_are_used_and_noted(images):
    opts = options(f"{NET} --width 12 --wide=true --eps 1e-3 --num-layers 2 --copy a,b")
    model = opts.builder(images)()
    assert [bias.shape for bias in model.trainable_weights[1::2]] == [(24,), (24,), (10,)]
    assert learning.optimizer(opts, model, images).epsilon == 1e-3
    own = {"width": 12, "act": "relu", "wide": True, "share": 0.5, "eps": 1e-3, "num_layers": 2}
    own |= {"copy": "a,b", "rank": "accuracy"}
    assert learning.settings(opts).items() >= own.items()
    flags = "--model-options eps=1e-3 wide=true --model-options width=12 copy=a,b --num-layers 2"
    assert opts == options(f"{NET} {flags}")


def test_evaluation_knows_options_of_task(images):
    assert "accuracy" in options(NET).builder(images).task_by
    build = options(f"{NET} --rank loss --share 0.25").builder(images)
    assert build.task.rank_by == registry.task(build.task_by, images).rank_by == "loss"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--widht 3", "own_options:net: unknown option 'widht'; did you mean 'width'?"),
        ("--width x", "own_options:net: width=x is not of type int; give a value such as 16"),
        ("--wide 2", "own_options:net: wide=2 is not of type bool; give a value such as False"),
        ("--width", "argument --width: expected one argument"),
        ("--width 3 4", "unrecognized arguments: 4 "),
        ("--model cnn --width 3", "unrecognized arguments: --width 3 "),
    ],
)
def test_wrong_own_option_is_refused(images, flags, message):
    with user_error(re.escape(message)):
        options(f"{NET} {flags}").builder(images)
