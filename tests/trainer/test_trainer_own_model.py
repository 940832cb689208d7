"""Mistakes in a model of the user's own: real jobs."""

import re

import pytest

pytestmark = pytest.mark.cluster
MODEL = """
import keras

def read(where):
    if where == {where!r}:
        open("/no/such/vocabulary.txt")

read("import")

class Own(keras.layers.Layer):
    def call(self, x, training=False):
        read("training" if training else "building")
        return x

def network(manifest):
    image = manifest.feature("image")
    inputs = keras.Input(image.shape, dtype=image.dtype, name="image")
    x = Own()(keras.layers.Flatten()(inputs))
    return keras.Model({{"image": inputs}}, keras.layers.Dense(len(manifest.class_names))(x))
"""


@pytest.mark.parametrize("where", ["import", "building", "training"])
def test_missing_file_is_shown_with_place(job, tmp_path, monkeypatch, where):
    (tmp_path / f"own_{where}.py").write_text(MODEL.format(where=where))
    monkeypatch.syspath_prepend(str(tmp_path))
    job.start("chief", flags=f"--model own_{where}:network --train-steps 2")
    assert job.wait() == {"chief-0": 1}
    for part in ("Traceback", "FileNotFoundError", f'own_{where}.py", line 6, in read'):
        assert part in job.output()


CHANGING = """
import keras

OPTIMIZER, LEARNING_RATE, WEIGHT_DECAY, AUGMENT = {constants}
SCHEDULE, BOUNDARIES_EPOCHS, FACTORS = {schedule}

def network(manifest):
    image = keras.Input((8, 8, 1), dtype="uint8", name="image")
    table = keras.layers.IntegerLookup(vocabulary={words}, output_mode="one_hot")
    x = keras.layers.Flatten()(table(keras.layers.Flatten()(image)))
    return keras.Model(image, keras.layers.Dense(10, name="head")(x))
"""
BEFORE = {
    "constants": '"sgd", 0.1, 0.0, "none"',
    "schedule": '"piecewise", (1,), (1, 0.5)',
    "words": "[1, 2]",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": "[2, 1]"}, "has other weights, vocabularies or statistics than when"),
        ({"constants": '"adam", 0.2, 0.1, "crop_flip"'}, "augment: .*learning_rate: .*optimizer: "),
        ({"schedule": '"linear", (2,), (1, 0.1)'}, "schedule: "),
    ],
    ids=["vocabulary", "constants", "schedule"],
)
def test_changed_model_is_not_resumed(job, tmp_path, monkeypatch, change, message):
    monkeypatch.syspath_prepend(str(tmp_path))
    for steps, text, code in ((2, BEFORE, 0), (4, BEFORE, 0), (6, BEFORE | change, 2)):
        (tmp_path / "changing.py").write_text(f"# {steps}" + CHANGING.format(**text))
        job.start("chief", flags=f"--model changing:network --train-steps {steps}")
        assert job.wait() == {"chief-0": code}
    assert re.search(message, job.output().splitlines()[-1])
