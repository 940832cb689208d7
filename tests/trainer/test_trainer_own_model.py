"""Mistakes in a model of the user's own: real jobs."""

import re

import pytest
import wrong_models

pytestmark = pytest.mark.cluster


def test_missing_file_is_shown_with_place(job, tmp_path, monkeypatch):
    (tmp_path / "reading.py").write_text('def network(manifest):\n    open("/no/such.txt")\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    job.start("chief", flags="--model reading:network --train-steps 2")
    assert job.wait() == {"chief-0": 1}
    assert re.search('Traceback.*reading.py", line 2.*FileNotFoundError', job.output(), re.S)


def test_wrong_model_is_refused_before_training(job):
    job.start("chief", "worker", "ps", flags="--model wrong_models:softmax --train-steps 2")
    assert job.wait("chief-0") == {"chief-0": 2}
    errors = re.findall("^(?!chief-0 computes|reader: ).+", job.log("chief-0").read_text(), re.M)
    assert len(errors) == 1 and wrong_models.REFUSED["softmax"][1] in errors[0]
    assert not job.events("start")


CHANGING = """
import keras

OPTIMIZER, LEARNING_RATE, WEIGHT_DECAY, AUGMENT = {constants}

def network(manifest):
    image = keras.Input((8, 8, 1), dtype="uint8", name="image")
    table = keras.layers.IntegerLookup(vocabulary={words}, output_mode="one_hot")
    x = keras.layers.Flatten()(table(keras.layers.Flatten()(image)))
    return keras.Model(image, keras.layers.Dense(10, name="head")(x))
"""
BEFORE = {"constants": '"sgd", 0.1, 0.0, "none"', "words": "[1, 2]"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": "[2, 1]"}, "has other weights, vocabularies or statistics than when"),
        ({"constants": '"adam", 0.2, 0.1, "crop_flip"'}, "augment: .*learning_rate: .*optimizer: "),
    ],
    ids=["vocabulary", "constants"],
)
def test_changed_model_is_not_resumed(job, tmp_path, monkeypatch, change, message):
    monkeypatch.syspath_prepend(str(tmp_path))
    for steps, text, code in ((2, BEFORE, 0), (4, BEFORE, 0), (6, BEFORE | change, 2)):
        (tmp_path / "changing.py").write_text(f"# {steps}" + CHANGING.format(**text))
        job.start("chief", flags=f"--model changing:network --train-steps {steps}")
        assert job.wait() == {"chief-0": code}
    assert re.search(message, job.output().splitlines()[-1])
