"""Mistakes in a model of the user's own: real jobs."""

from __future__ import annotations

import pytest
from trainer_jobs import Job

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
    read("function")
    image = manifest.feature("image")
    inputs = keras.Input(image.shape, dtype=image.dtype, name="image")
    x = Own()(keras.layers.Flatten()(inputs))
    return keras.Model({{"image": inputs}}, keras.layers.Dense(len(manifest.class_names))(x))
"""


@pytest.mark.parametrize("where", ["import", "function", "building", "training"])
def test_a_file_that_the_users_model_misses_is_shown_with_where_it_was_opened(digits, tmp_path, monkeypatch, where):
    (tmp_path / f"own_{where}.py").write_text(MODEL.format(where=where))
    monkeypatch.syspath_prepend(str(tmp_path))
    job = Job(digits, tmp_path / "job")
    job.start("chief", flags=["--model", f"own_{where}:network", "--train-steps", 2])
    try:
        assert job.wait() == {"chief-0": 1}
    finally:
        job.close()
    said = job.output()
    assert "Traceback" in said and "FileNotFoundError" in said and f'own_{where}.py", line 6, in read' in said, said
