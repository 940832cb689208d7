"""Options of a model of the user's own: keywords of its function and of its optimizer are flags."""

import contextlib
import json

import pytest

from common.errors import UserError
from common.manifest import Manifest
from trainer import learning
from trainer.job import identity
from trainer.options import Options, parse

MODEL = """
import keras

def net(manifest, *, width=16, act="relu", wide=False, share=0.5, num_layers=1):
    image = manifest.feature("image")
    layers = [keras.Input(image.shape), keras.layers.Flatten()]
    layers += [keras.layers.Dense(width * (1 + wide), act) for _ in range(num_layers)]
    return keras.Sequential([*layers, keras.layers.Dense(manifest.outputs)])

def optimizer(manifest, schedule, *, eps=1e-7):
    return keras.optimizers.Adam(schedule, epsilon=eps)
"""
FLAGS = ["--data-dir", "d", "--model", "own_options:net", "--train-steps", "9"]


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_options.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)


def options(*flags: str) -> Options:
    return parse([*FLAGS, "--job-dir", "j", *flags])


def test_own_options_are_used_and_noted(digits):
    manifest = Manifest.load(digits)
    opts = options("--width", "12", "--wide=true", "--eps", "1e-3", "--num-layers", "2")
    model = opts.builder(manifest)()
    assert [bias.shape for bias in model.trainable_weights[1::2]] == [(24,), (24,), (10,)]
    assert learning.optimizer(opts, model, manifest).epsilon == 1e-3
    noted = learning.settings(opts)
    own = {"width": 12, "act": "relu", "wide": True, "share": 0.5, "eps": 1e-3, "num_layers": 2}
    assert noted.items() >= own.items()
    assert opts == options("--model-options", "eps=1e-3,wide=true,width=12", "--num-layers", "2")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--widht", "3"], "unknown option 'widht'; did you mean 'width'?"),
        (["--width", "x"], "width=x is not of type int"),
        (["--wide", "yes"], "wide=yes is not true or false"),
        (["--width"], "unrecognized arguments: --width "),
        (["--act", "a,b"], "'act=a,b' is not NAME=VALUE without a comma"),
        (["--model", "cnn", "--width", "3"], "unrecognized arguments: --width 3 "),
    ],
)
def test_wrong_own_option_is_refused(digits, flags, message):
    with pytest.raises(UserError) as refused:
        options(*flags).builder(Manifest.load(digits))
    assert message in str(refused.value)


@pytest.mark.parametrize("width", ["16", "12"])
def test_job_keeps_its_own_options(tmp_path, digits, width):
    manifest = Manifest.load(digits)
    first = options("--width", "16", "--act", "tanh").facts(manifest)
    (tmp_path / "job.json").write_text(json.dumps({"identity": first}))
    refused = pytest.raises(UserError, match=r"model_options.*width=16.*width=12")
    with refused if width == "12" else contextlib.nullcontext():
        again = options("--act", "tanh", "--width", width)
        identity.check(str(tmp_path), again.facts(manifest))


def test_help_lists_own_options(capsys):
    with pytest.raises(SystemExit):
        parse(["--model", "own_options:net", "--help"])
    shown = capsys.readouterr().out.partition("own_options:net:")[2]
    assert "--width VALUE" in shown and "default: 16" in shown and "--eps" in shown
