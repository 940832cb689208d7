"""Weights taken from what was trained before, and the records that they have learnt from."""

import contextlib
import dataclasses
import itertools
import pathlib
import shutil

import keras
import numbered
import numpy as np
import pytest

from common import provenance
from common.errors import UserError
from common.provenance import TrainedOn
from common.storage.files import copy_tree
from trainer import warm_start
from trainer.data.shards import content_hashes
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


def same(one: keras.layers.Layer, another: keras.layers.Layer) -> bool:
    return all(map(np.array_equal, one.get_weights(), another.get_weights()))


def save_job(directory: pathlib.Path, model: keras.Model) -> str:
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    journal = Journal(str(directory), "chief-0")
    checkpoints = Checkpoints(str(directory), State(model, optimizer), journal)
    for step in (9, 10):  # the newest counts, not the last by its name
        checkpoints.save(step)
    checkpoints.wait()
    return str(directory)


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["functional", "subclassed", "lstm", "frozen"])
def test_weights_are_read_from_every_source(images, tmp_path, store, name):
    build = registry.builder(f"own_models:{name}", images, {})
    source = filled(build())
    values = {name: weight.numpy() for name, weight in named(source).items()}
    save_job(tmp_path / "job", source)
    export(values, build, images, str(tmp_path / "model"))
    kinds = {"job": "checkpoint of step 10", "model": "exported model"}
    if name != "subclassed":  # which has no `get_config`, so that Keras saves none
        source.save(tmp_path / "a.keras")
        kinds["a.keras"] = "file"
    copy_tree(tmp_path, store)
    for root, (file, kind) in itertools.product((tmp_path, store), kinds.items()):
        fresh = build()
        assert not same(fresh, source)
        note = warm_start.take(f"{root}/{file}", fresh)
        assert note == f"{len(values)} of {len(values)} weights from the {kind}"
        assert same(fresh, source)


def backbone() -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    x = L.BatchNormalization()(L.Conv2D(4, 3, name="conv_in")(inputs))
    return keras.Model(inputs, L.Conv2D(4, 3)(x), name="backbone")


def classifier(classes: int) -> keras.Model:
    inputs = keras.Input((8, 8, 1), name="image")
    x = L.Conv2D(1, 1)(inputs)  # of the names and places of others within the backbone
    x = L.Flatten()(backbone()(x))
    return keras.Model({"image": inputs}, L.Dense(classes, name="head")(x))


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (
            backbone,
            "8 of 12 weights from the file into layer 'backbone'; by name and shape it has no "
            "conv2d/kernel, conv2d/bias, head/kernel, head/bias",
        ),
        (
            lambda: classifier(3),
            "10 of 12 weights from the file; by name and shape it has no head/kernel, head/bias",
        ),
    ],
    ids=["backbone", "another head"],
)
def test_weights_go_where_they_fit(tmp_path, source, note):
    """Weights that do not fit keep their values."""
    source, model, place = filled(source()), filled(classifier(5), 1), str(tmp_path / "b.keras")
    source.save(place)
    assert warm_start.take(place, model) == note
    part = source if source.name == "backbone" else source.get_layer("backbone")
    assert same(model.get_layer("backbone"), part)
    assert same(model.get_layer("head"), filled(classifier(5), 1).get_layer("head"))


def test_source_without_fitting_weight_is_error(tmp_path):
    keras.Sequential([keras.Input((4,)), L.Dense(4)]).save(tmp_path / "a.keras")
    expected = r"the file has none of these by name and shape: conv2d/kernel, .* and 7 more"
    with pytest.raises(UserError, match=expected):
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


# The number of files does not decide which records are in which split.
@pytest.mark.parametrize(
    ("name", "value", "is_refused"),
    [("split_seed", 1, True), ("validation_fraction", 0.0, True), ("shards", 99, False)],
)
def test_weights_of_another_split_are_refused(images, tmp_path, name, value, is_refused):
    arguments = {**images.arguments, name: value}
    provenance.write(
        dataclasses.replace(images, arguments=arguments), "cnn", str(tmp_path / "model")
    )
    (tmp_path / "job").mkdir()
    record = {"identity": {"dataset": images.name}, "settings": {}, "arguments": arguments}
    identity.begin(str(tmp_path / "job"), record, write=True)
    refused = pytest.raises(UserError, match=f"{name} .* and not")
    for source in ("model", "job", "job/best"):
        another = dataclasses.replace(images, name="another")
        warm_start.check_unseen(f"{tmp_path}/{source}", another)
        with refused if is_refused else contextlib.nullcontext():
            warm_start.check_unseen(f"{tmp_path}/{source}", images)


LATER = np.random.default_rng(0).integers(0, 2**64, 500, np.uint64)


@pytest.fixture
def manifest(tmp_path):
    return numbered.dataset(tmp_path / "data", 500)


@pytest.fixture
def hashes(manifest, tmp_path):
    return np.concatenate([*content_hashes(manifest, str(tmp_path / "data"), "train")])


def test_saved_records_are_known_again(manifest, hashes, tmp_path, store):
    assert len(np.unique(hashes)) == 500
    other = dataclasses.replace(manifest, name="other")
    for directory in (tmp_path, store):
        TrainedOn.of(manifest, [hashes[:300], hashes[300:]]).save(str(directory))
        again = TrainedOn.load(str(directory))
        assert not again.unseen(other, hashes).any() and again.unseen(other, LATER).all()
        # The dataset's own splits say what is not known.
        assert again.unseen(manifest, hashes).all()
    assert TrainedOn.load(str(tmp_path / "gone")) is None


def test_records_of_before_count_too(manifest, hashes):
    """But not those of another form."""
    second, third = (dataclasses.replace(manifest, origin=origin) for origin in ("second", "third"))
    first = TrainedOn.of(manifest, [hashes])
    both = TrainedOn.of(second, [LATER]).and_before(first)
    assert not both.unseen(third, np.concatenate([hashes, LATER])).any()
    assert not both.unseen(second, hashes).any() and both.unseen(second, LATER).all()
    features = tuple(dataclasses.replace(f, unit="lux") for f in manifest.features)
    bright = dataclasses.replace(manifest, features=features)
    assert TrainedOn.of(bright, [LATER]).and_before(first).unseen(bright, hashes).all()


@pytest.mark.parametrize(
    ("saved", "source", "is_known"),
    [("", "best/", True), ("assets.extra", "", True), ("", "", True), ("", "a.keras", False)],
)
def test_source_of_weights_has_records(manifest, hashes, tmp_path, saved, source, is_known):
    for name in ("best", "assets.extra"):
        (tmp_path / name).mkdir()
    learnt = TrainedOn.of(manifest, [hashes])
    learnt.save(str(tmp_path / saved))
    found = warm_start.learnt_from(f"{tmp_path}/{source}".rstrip("/"))
    assert (found and found.hashes.keys()) == (learnt.hashes.keys() if is_known else None)
