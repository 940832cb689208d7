"""Jobs that begin with the weights of others: real processes."""

import dataclasses
import shutil

import keras
import numpy as np
import pytest

from common import provenance
from common.provenance import TrainedOn
from tests.root import blocks
from trainer import warm_start
from trainer.models import registry

pytestmark = pytest.mark.cluster
FLAGS = "--model own_models:batch_norm --batch-size 32 --optimizer sgd --deterministic"


def test_all_replicas_begin_with_same_weights(make, images):
    """And a resumed job takes none. What the weights were trained on counts for its model too."""
    first, alone, several = make("first"), make("alone"), make("several")
    first.run("chief", flags=f"{FLAGS} --learning-rate 0.05 --train-steps 60")
    other = dataclasses.replace(images, name="other")
    TrainedOn.of(other, [np.arange(9)]).save(str(first.directory))
    plain = f"{FLAGS} --learning-rate 0.001 --train-steps"
    begun = f"--init-from {first.directory} {plain}"
    note = f"--init-from {first.directory}: 11 of 11 weights from the checkpoint of step 60"
    assert alone.run("chief", flags=f"{begun} 20").count(note) == 1
    assert several.run("chief", "worker", flags=f"{begun} 20").count(note) == 1
    theirs = several.variables(20)
    for name, value in alone.variables(20).items():
        np.testing.assert_allclose(theirs[name], value, atol=1e-5, err_msg=name)
    (name,) = [name for name in theirs if "functional.Sdense.Skernel" in name]
    moved = np.abs(theirs[name] - first.variables(60)[name]).max()
    assert 0 < moved < 0.05
    shutil.rmtree(first.directory)
    assert alone.run("chief", flags=f"{begun} 30").count("--init-from") == 1
    learnt = provenance.records_of(str(alone.directory / "model"))
    assert learnt.hashes.keys() == {other.fingerprint, images.fingerprint}
    several.start("chief", flags=f"{plain} 30")
    assert several.wait() == {"chief-0": 2}
    assert f"init_from: '{first.directory}' -> None" in several.output()


def test_page_fine_tunes_backbone(images, tmp_path, monkeypatch):
    (code,) = [block for block in blocks("MODELS.md") if "def frozen" in block]
    (tmp_path / "tuned.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = {"alpha": 0.35, "include_top": False, "weights": None}
    keras.applications.MobileNetV2((32, 32, 3), **options).save(tmp_path / "backbone.keras")
    image = dataclasses.replace(images.feature("image"), shape=(32, 32, 3))
    manifest = dataclasses.replace(images, features=(image, images.feature("label")))
    for name, trainable in (("frozen", 2), ("thawed", 158)):
        model = registry.builder(f"tuned:{name}", manifest, {})()
        note = warm_start.take(str(tmp_path / "backbone.keras"), model)
        assert note.startswith("260 of 262 weights from the file into layer 'backbone'")
        assert len(model.trainable_variables) == trainable
