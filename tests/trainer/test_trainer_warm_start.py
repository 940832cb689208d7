"""Weights taken from what was trained before, from every kind of place."""

import contextlib
import dataclasses
import itertools
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


def filled(model: keras.Model, seed: int = 0) -> keras.Model:
    draw = np.random.default_rng(seed)
    for weight in named(model).values():
        weight.assign(draw.normal(size=weight.shape))
    return model


def values(model: keras.layers.Layer) -> dict[str, np.ndarray]:
    return {name: weight.numpy() for name, weight in named(model).items()}


def same(one: keras.layers.Layer, another: keras.layers.Layer) -> bool:
    ours, theirs = values(one), values(another)
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name]) for name in ours
    )


def save_job(directory: pathlib.Path, model: keras.Model) -> str:
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    checkpoints = Checkpoints(
        str(directory), State(model, optimizer), Journal(str(directory), "chief-0")
    )
    for step in (9, 10):  # the newest counts, not the last by its name
        checkpoints.save(step)
    checkpoints.wait()
    return str(directory)


def builder(digits: pathlib.Path, name: str) -> registry.Builder:
    return registry.builder(f"own_models:{name}", Manifest.load(digits), {})


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["functional", "subclassed", "lstm", "frozen"])
def test_weights_are_read_from_every_source(digits, tmp_path, store, name):
    build = builder(digits, name)
    source, count = filled(build()), len(named(build()))
    save_job(tmp_path / "job", source)
    export(values(source), build, Manifest.load(digits), str(tmp_path / "model"))
    kinds = {"job": "checkpoint of step 10", "model": "exported model"}
    if name != "subclassed":  # which has no `get_config`, so that Keras saves none
        source.save(tmp_path / "a.keras")
        kinds["a.keras"] = "file"
    copy_tree(tmp_path, store)
    for root, (file, kind) in itertools.product((tmp_path, store), kinds.items()):
        fresh = build()
        assert not same(fresh, source)
        assert (
            warm_start.take(f"{root}/{file}", fresh)
            == f"{count} of {count} weights from the {kind}"
        )
        assert same(fresh, source)


def backbone(width: int = 4) -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    x = L.BatchNormalization()(L.Conv2D(width, 3, name="conv_in")(inputs))
    return keras.Model(inputs, L.Conv2D(4, 3)(x), name="backbone")


def classifier(classes: int, body: Callable[[], keras.Model] = backbone) -> keras.Model:
    inputs = keras.Input((8, 8, 1), name="image")
    x = L.Conv2D(1, 1)(inputs)  # of the names and places of others within the backbone
    return keras.Model({"image": inputs}, L.Dense(classes, name="head")(L.Flatten()(body()(x))))


def test_backbone_goes_into_its_layer(tmp_path):
    source, model = filled(backbone()), filled(classifier(5), 1)
    source.save(tmp_path / "b.keras")
    before = values(model)
    note = warm_start.take(str(tmp_path / "b.keras"), model)
    assert note == (
        "8 of 12 weights from the file into layer 'backbone'; by name and shape it has no "
        "conv2d/kernel, conv2d/bias, "
        "head/kernel, head/bias"
    )
    assert same(model.get_layer("backbone"), source)
    after = values(model)
    assert all(np.array_equal(after[n], before[n]) for n in after if not n.startswith("backbone/"))


@pytest.mark.parametrize("kind", ["job", "file"])
def test_another_head_keeps_its_weights(tmp_path, kind):
    source, model = filled(classifier(5)), filled(classifier(3), 1)
    place, head = str(tmp_path / "a.keras"), model.get_layer("head").get_weights()
    source.save(place)
    note = warm_start.take(save_job(tmp_path / "job", source) if kind == "job" else place, model)
    assert note.startswith("10 of 12 weights") and note.endswith("has no head/kernel, head/bias")
    assert same(model.get_layer("backbone"), source.get_layer("backbone"))
    assert all(map(np.array_equal, head, model.get_layer("head").get_weights()))


def test_layers_match_by_name_not_place(tmp_path):
    saved_as = keras.Sequential(
        [keras.Input((4,)), L.Dense(4, name="block_1"), L.Dense(4, name="block_2")]
    )
    model = keras.Sequential(
        [keras.Input((4,)), L.Dense(4, name="block_2"), L.Dense(4, name="block_3")]
    )
    assert warm_start.take(save_job(tmp_path / "job", filled(saved_as)), model).startswith(
        "2 of 4 weights"
    )
    np.testing.assert_array_equal(model.layers[0].kernel, saved_as.layers[1].kernel)


def test_source_without_fitting_weight_is_error(tmp_path):
    keras.Sequential([keras.Input((4,)), L.Dense(4)]).save(tmp_path / "a.keras")
    with pytest.raises(
        UserError,
        match=r"the file has none of these by name and shape: conv2d/kernel, .* and 7 more",
    ):
        warm_start.take(str(tmp_path / "a.keras"), classifier(2))


def test_unreadable_source_is_error(tmp_path, make_model):
    model = classifier(2)
    (tmp_path / "broken.keras").write_bytes(b"PK")
    (tmp_path / "empty").mkdir()
    damaged = pathlib.Path(save_job(tmp_path / "job", model))
    for file in (damaged / "checkpoints").glob("ckpt-10.*"):
        file.write_bytes(b"")
    foreign = shutil.copytree(make_model(), tmp_path / "foreign")
    names = ("broken.keras", "empty", "gone", "gone.keras")
    for place in (*(tmp_path / name for name in names), damaged, foreign):
        with pytest.raises(UserError, match=f"--init-from {place} cannot be used") as refused:
            warm_start.take(str(place), model)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("split_seed", 1), ("test_fraction", 0.5), ("validation_fraction", 0.0), ("shards", 99)],
)
def test_weights_of_another_split_are_refused(digits, tmp_path, name, value):
    manifest = Manifest.load(digits)
    other = dataclasses.replace(manifest, arguments={**manifest.arguments, name: value})
    provenance.write(other, "cnn", str(tmp_path / "model"))
    (tmp_path / "job").mkdir()
    record = {
        "identity": {"dataset": other.name},
        "settings": {},
        "arguments": dict(other.arguments),
    }
    identity.begin(str(tmp_path / "job"), record, write=True)
    for source in ("model", "job", "job/best"):
        warm_start.check_unseen(
            f"{tmp_path}/{source}", dataclasses.replace(manifest, name="another")
        )
        # The number of files does not decide which records are in which split.
        with (
            contextlib.nullcontext()
            if name == "shards"
            else pytest.raises(UserError, match=f"{name} .* and not")
        ):
            warm_start.check_unseen(f"{tmp_path}/{source}", manifest)
