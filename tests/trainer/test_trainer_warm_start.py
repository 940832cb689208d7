"""Weights taken from what was trained before, and the records that they have learnt from."""

import dataclasses
import shutil

import keras
import numpy as np
import pytest

from common import provenance
from common.provenance import TrainedOn
from tests.errors import user_error
from trainer import warm_start
from trainer.export import export
from trainer.job import identity
from trainer.job.checkpoints import Checkpoints
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.models import registry
from trainer.nn.weights import named

L = keras.layers


def filled(model, seed=0):
    draw = np.random.default_rng(seed)
    for weight in named(model).values():
        weight.assign(draw.normal(size=weight.shape))
    return model


def same(one, another):
    return all(map(np.array_equal, one.get_weights(), another.get_weights()))


def save_job(directory, model):
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    journal = Journal(str(directory), "chief-0")
    checkpoints = Checkpoints(str(directory), State(model, optimizer), journal)
    for step in (9, 10):  # the newest counts, not the last by its name
        checkpoints.save(step)
    checkpoints.wait()


@pytest.mark.cluster
def test_weights_are_read_from_every_source(images, tmp_path):
    build = registry.builder("own_models:functional", images, {})
    source = filled(build())
    values = {name: weight.numpy() for name, weight in named(source).items()}
    save_job(tmp_path / "job", source)
    export(values, build, images, str(tmp_path / "model"))
    source.save(tmp_path / "a.keras")
    kinds = {"job": "checkpoint of step 10", "model": "exported model", "a.keras": "file"}
    for file, kind in kinds.items():
        fresh = build()
        assert not same(fresh, source)
        note = warm_start.take(f"{tmp_path}/{file}", fresh)
        assert note == f"{len(values)} of {len(values)} weights from the {kind}"
        assert same(fresh, source)


def backbone():
    inputs = keras.Input((8, 8, 1))
    x = L.BatchNormalization()(L.Conv2D(4, 3, name="conv_in")(inputs))
    return keras.Model(inputs, L.Conv2D(4, 3)(x), name="backbone")


def classifier(classes):
    inputs = keras.Input((8, 8, 1), name="image")
    x = L.Conv2D(1, 1)(inputs)  # of the names and places of others within the backbone
    x = L.Flatten()(backbone()(x))
    return keras.Model({"image": inputs}, L.Dense(classes, name="head")(x))


def test_weights_go_where_they_fit(tmp_path):
    """Weights that do not fit keep their values."""
    whole, place = filled(classifier(3)), str(tmp_path / "b.keras")
    part = whole.get_layer("backbone")
    for source, taken, missing in (
        (whole, "10 of 12 weights from the file", ""),
        (
            part,
            "8 of 12 weights from the file into layer 'backbone'",
            "conv2d/kernel, conv2d/bias, ",
        ),
    ):
        model, before = filled(classifier(5), 1), filled(classifier(5), 1)
        source.save(place)
        note = f"{taken}; by name and shape it has no {missing}head/kernel, head/bias"
        assert warm_start.take(place, model) == note
        assert same(model.get_layer("backbone"), part)
        assert same(model.get_layer("head"), before.get_layer("head"))


def test_unusable_source_is_error(tmp_path, make_model):
    model = classifier(2)
    keras.Sequential([keras.Input((4,)), L.Dense(4)]).save(tmp_path / "other.keras")
    (tmp_path / "broken.keras").write_bytes(b"PK")
    (tmp_path / "empty").mkdir()
    shutil.copytree(make_model(), tmp_path / "foreign")
    save_job(tmp_path / "job", model)
    for file in (tmp_path / "job" / "checkpoints").glob("ckpt-10.*"):
        file.write_bytes(b"")
    unfit = "the file has none of these by name and shape: conv2d/kernel, .* and 7 more"
    for name in ("other.keras", "broken.keras", "empty", "foreign", "job", "gone", "gone.keras"):
        message = unfit if name == "other.keras" else "cannot be used"
        with user_error(f"--init-from .*{name}:? {message}"):
            warm_start.take(str(tmp_path / name), model)


@pytest.mark.parametrize("name", ["split_seed", "test_fraction", "validation_fraction"])
def test_weights_of_another_split_are_refused(images, tmp_path, name):
    arguments = {**images.arguments, name: 1, "shards": 99}  # whose number decides nothing
    there = dataclasses.replace(images, arguments=arguments)
    provenance.write(there, "cnn", str(tmp_path / "model"))
    record = {"identity": {"dataset": images.name}, "settings": {}, "arguments": arguments}
    identity.begin(str(tmp_path), record, write=True)
    for source in (f"{tmp_path}/model", str(tmp_path), f"{tmp_path}/best"):
        with user_error(f"{name} 1 and not"):
            warm_start.check_unseen(source, images)
        for manifest in (there, dataclasses.replace(images, name="another")):
            warm_start.check_unseen(source, manifest)


@pytest.mark.parametrize("saved", ["", "assets.extra"])
def test_source_of_weights_has_records(table, tmp_path, saved):
    (tmp_path / saved / "best").mkdir(parents=True, exist_ok=True)
    TrainedOn.of(table, [np.arange(9), np.arange(5, 20)]).save(str(tmp_path / saved))
    for source in ("", "/best") if not saved else ("",):
        (hashes,) = warm_start.learnt_from(f"{tmp_path}{source}").hashes.values()
        assert hashes.tolist() == [*range(20)]
    assert warm_start.learnt_from(f"{tmp_path}/a.keras") is None
