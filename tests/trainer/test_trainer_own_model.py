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
def test_a_file_that_the_users_model_misses_is_shown_with_where_it_was_opened(
    job, tmp_path, monkeypatch, where
):
    (tmp_path / f"own_{where}.py").write_text(MODEL.format(where=where))
    monkeypatch.syspath_prepend(str(tmp_path))
    job.start("chief", flags=["--model", f"own_{where}:network", "--train-steps", 2])
    assert job.wait() == {"chief-0": 1}
    said = job.output()
    assert (
        "Traceback" in said
        and "FileNotFoundError" in said
        and f'own_{where}.py", line 6, in read' in said
    ), said


BEFORE = """
OPTIMIZER, LEARNING_RATE, WEIGHT_DECAY, AUGMENT = "sgd", 0.1, 0.0, "none"
SCHEDULE, BOUNDARIES_EPOCHS, FACTORS = "piecewise", (1,), (1, 0.5)
"""
AFTER = """
OPTIMIZER, LEARNING_RATE, WEIGHT_DECAY, AUGMENT = "adam", 0.2, 0.1, "crop_flip"
SCHEDULE, BOUNDARIES_EPOCHS, FACTORS = "linear", (2,), (1, 0.1)
"""


def test_changed_constants_are_refused(job, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for steps, constants, code in ((2, BEFORE, 0), (3, BEFORE, 0), (4, AFTER, 2)):
        (tmp_path / "constants.py").write_text("from own_models import sequential" + constants)
        job.start("chief", flags=["--model", "constants:sequential", "--train-steps", steps])
        assert job.wait() == {"chief-0": code}
    refusal = job.output().splitlines()[-1]
    assert all(f"{name.lower()}: " in refusal for name in re.findall("[A-Z_]{5,}", BEFORE))
