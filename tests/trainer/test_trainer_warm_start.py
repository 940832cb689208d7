"""Weights taken from what was trained before, from every kind of place."""

import contextlib
import dataclasses
import pathlib
import shutil
from collections.abc import Callable

import keras
import numpy as np
import pytest

from common import provenance
from common.errors import UserError
from common.manifest import Manifest
from common.storage.files import copy_tree
from trainer import warm_start
from trainer.export import export
from trainer.job import identity
from trainer.job.checkpoints import Checkpoints
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.models import registry
from trainer.nn.weights import named

L = keras.layers
MODELS = ["functional", "sequential", "subclassed", "lstm", "batch_norm", "frozen"]


def filled(model: keras.Model, seed: int = 0) -> keras.Model:
    draw = np.random.default_rng(seed)
    for weight in named(model).values():
        weight.assign(draw.normal(size=weight.shape))
    return model


def values(model: keras.layers.Layer) -> dict[str, np.ndarray]:
    return {name: weight.numpy() for name, weight in named(model).items()}


def same(one: keras.layers.Layer, another: keras.layers.Layer) -> bool:
    ours, theirs = values(one), values(another)
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def saved(directory: pathlib.Path, model: keras.Model) -> str:
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(str(directory), State(model, optimizer), Journal(str(directory), "chief-0"))
    for step in (9, 10):  # the newest counts, not the last by its name
        checkpoints.save(step)
    checkpoints.wait()
    return str(directory)


def builder(digits: pathlib.Path, name: str) -> registry.Builder:
    return registry.builder(f"own_models:{name}", Manifest.load(digits), {})


@pytest.mark.cluster
@pytest.mark.parametrize("name", MODELS)
def test_all_weights_come_back_from_all_kinds_of_places_here_and_in_a_bucket(digits, tmp_path, store, name):
    build = builder(digits, name)
    source = filled(build())
    kept = {
        "checkpoint of step 10": saved(tmp_path / "job", source),
        "exported model": str(tmp_path / "model"),
        "file": str(tmp_path / "a.weights.h5"),
    }
    export(values(source), build, Manifest.load(digits), kept["exported model"])
    source.save_weights(kept["file"])
    copy_tree(tmp_path, store)
    for what, place in [
        *kept.items(),
        *((what, place.replace(str(tmp_path), str(store))) for what, place in kept.items()),
    ]:
        fresh = build()
        assert not same(fresh, source)
        told = warm_start.take(place, fresh)
        assert same(fresh, source), what
        assert told == f"{len(values(source))} of {len(values(source))} weights from the {what}"


def backbone(width: int = 4) -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    x = L.BatchNormalization()(L.Conv2D(width, 3, name="conv_in")(inputs))
    return keras.Model(inputs, L.Conv2D(4, 3)(x), name="backbone")


def classifier(classes: int, body: Callable[[], keras.Model] = backbone) -> keras.Model:
    inputs = keras.Input((8, 8, 1), name="image")
    x = L.Conv2D(1, 1)(inputs)  # of the names and places of others within the backbone
    return keras.Model({"image": inputs}, L.Dense(classes, name="head")(L.Flatten()(body()(x))))


def test_a_backbone_goes_into_the_layer_that_it_is_and_the_rest_is_told(tmp_path):
    source = filled(backbone())
    for place in (tmp_path / "b.keras", tmp_path / "b.weights.h5"):
        source.save(place) if place.suffix == ".keras" else source.save_weights(place)
        model = filled(classifier(5), 1)
        before = values(model)
        told = warm_start.take(str(place), model)
        assert told == (
            "8 of 12 weights from the file into layer 'backbone'; not there: conv2d/kernel, conv2d/bias, head/kernel, head/bias"
        )
        assert same(model.get_layer("backbone"), source)
        after = values(model)
        assert all(np.array_equal(after[n], before[n]) for n in after if not n.startswith("backbone/"))


@pytest.mark.parametrize("kind", ["job", "h5"])
def test_another_head_is_told_with_its_shapes_and_keeps_its_weights(tmp_path, kind):
    source, model = filled(classifier(5)), filled(classifier(3), 1)
    place, head = str(tmp_path / "a.weights.h5"), model.get_layer("head").get_weights()
    source.save_weights(place)
    told = warm_start.take(saved(tmp_path / "job", source) if kind == "job" else place, model)
    assert "head/kernel (64, 5) and not (64, 3), head/bias (5,) and not (3,)" in told and "not there" not in told
    assert told.startswith("10 of 12 weights")
    assert same(model.get_layer("backbone"), source.get_layer("backbone"))
    assert all(map(np.array_equal, head, model.get_layer("head").get_weights()))


def test_a_layer_of_another_name_in_the_same_place_is_not_taken_for_this_one(tmp_path):
    saved_as = keras.Sequential([keras.Input((4,)), L.Dense(4, name="block_1"), L.Dense(4, name="block_2")])
    model = keras.Sequential([keras.Input((4,)), L.Dense(4, name="block_2"), L.Dense(4, name="block_3")])
    filled(saved_as).save_weights(tmp_path / "a.weights.h5")
    with pytest.raises(
        UserError, match=r"no weight of this model is there by its name and shape \(the file\); the model has"
    ):
        warm_start.take(str(tmp_path / "a.weights.h5"), model)
    # By name alone, where there are names.
    assert warm_start.take(saved(tmp_path / "job", saved_as), model).startswith("2 of 4 weights")
    np.testing.assert_array_equal(model.layers[0].kernel, saved_as.layers[1].kernel)


def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, make_model):
    model = classifier(2)
    (tmp_path / "broken.keras").write_bytes(b"PK")
    (tmp_path / "broken.weights.h5").write_bytes(b"no HDF")
    (tmp_path / "empty").mkdir()
    damaged = pathlib.Path(saved(tmp_path / "job", model))
    for file in (damaged / "checkpoints").glob("ckpt-10.*"):
        file.write_bytes(b"")
    foreign = shutil.copytree(make_model(), tmp_path / "foreign")
    names = ("broken.keras", "broken.weights.h5", "empty", "gone", "gone.keras")
    for place in (*(tmp_path / name for name in names), damaged, foreign):
        with pytest.raises(UserError, match=f"--init-from {place} cannot be used") as refused:
            warm_start.take(str(place), model)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ["model", "job", "best"])
def test_weights_that_may_know_what_is_for_test_here_are_refused(digits, tmp_path, kind):
    manifest = Manifest.load(digits)
    for name, changed in {"split_seed": 1, "test_fraction": 0.5, "validation_fraction": 0.0, "shards": 99}.items():
        source = tmp_path / name
        other = dataclasses.replace(manifest, arguments={**manifest.arguments, name: changed})
        if kind == "model":
            provenance.write(other, "cnn", str(source))
        else:
            source.mkdir()
            record = {"identity": {"dataset": other.name}, "arguments": dict(other.arguments)}
            identity.begin(str(source), record, write=True)
        place = str(source / "best") if kind == "best" else str(source)
        with contextlib.nullcontext() if name == "shards" else pytest.raises(UserError, match=f"{name} .* and not"):
            warm_start.check_unseen(place, manifest)
        warm_start.check_unseen(place, dataclasses.replace(manifest, name="another"))
