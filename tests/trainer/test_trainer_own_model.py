"""Mistakes in a model of the user's own: real jobs."""

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
def test_a_file_that_the_users_model_misses_is_shown_with_where_it_was_opened(job, tmp_path, monkeypatch, where):
    (tmp_path / f"own_{where}.py").write_text(MODEL.format(where=where))
    monkeypatch.syspath_prepend(str(tmp_path))
    job.start("chief", flags=["--model", f"own_{where}:network", "--train-steps", 2])
    assert job.wait() == {"chief-0": 1}
    said = job.output()
    assert "Traceback" in said and "FileNotFoundError" in said and f'own_{where}.py", line 6, in read' in said, said


STEEP = """
import keras

class Steep(keras.layers.Layer):
    def call(self, x):  # itself, with a slope that is infinite
        return x + keras.ops.sqrt(x - keras.ops.stop_gradient(x))

def network(manifest):
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10), Steep()])
"""


@pytest.mark.parametrize("strategy", [["one_device"], ["mirrored", "--logical-cpus", 2]], ids=lambda words: words[0])
def test_gradients_that_no_scale_of_the_loss_makes_finite_end_a_job_in_float16(job, tmp_path, monkeypatch, strategy):
    (tmp_path / "steep.py").write_text(STEEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = ["--model", "steep:network", "--precision", "float16", "--train-steps", 5000, "--strategy", *strategy]
    job.start("chief", flags=flags)
    assert job.wait() == {"chief-0": 2}
    assert "gradients overflow float16 at step" in job.output().splitlines()[-1]


CONSTANTS = {
    "OPTIMIZER": ("sgd", "adam"),
    "LEARNING_RATE": (0.1, 0.2),
    "WEIGHT_DECAY": (0.0, 0.1),
    "SCHEDULE": ("piecewise", "linear"),
    "BOUNDARIES_EPOCHS": ((1,), (2,)),
    "FACTORS": ((1, 0.5), (1, 0.1)),
    "AUGMENT": ("none", "crop_flip"),
}


def test_changed_constants_are_refused(job, tmp_path, monkeypatch):
    def resume(values: dict[str, object], steps: int) -> int:
        lines = ["from own_models import sequential", *(f"{name} = {value!r}" for name, value in values.items())]
        (tmp_path / "constants.py").write_text("\n".join(lines))
        job.start("chief", flags=["--model", "constants:sequential", "--train-steps", steps])
        return job.wait()["chief-0"]

    monkeypatch.syspath_prepend(str(tmp_path))
    first = {name: values[0] for name, values in CONSTANTS.items()}
    assert resume(first, 2) == 0
    assert resume(first, 3) == 0

    for changed in (set(CONSTANTS), {"FACTORS"}):
        values = {name: both[name in changed] for name, both in CONSTANTS.items()}
        assert resume(values, 4) == 2
        refusal = job.output().splitlines()[-1]
        assert "was started with other settings" in refusal
        assert {name for name in CONSTANTS if f"{name.lower()}: " in refusal} == changed
