from unittest import mock

import memory_store
import numbered
import pytest
import tensorflow as tf

from common import provenance
from common.manifest import Manifest
from trainer.export import export
from trainer.models.registry import builder
from trainer.nn.weights import named


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    return numbered.dataset(tmp_path_factory.mktemp("data") / "numbered", 8, classes=2)


def exported(manifest: Manifest, directory: object, value: float) -> None:
    build = builder("numbered:network", manifest, {})
    values = {name: weight.numpy() * 0 + value for name, weight in named(build()).items()}
    export(values, build, manifest, str(directory))


def values(directory: object) -> set[float]:
    return {
        float(v)
        for variable in tf.saved_model.load(str(directory)).variables
        for v in variable.numpy().ravel()
    }


@pytest.mark.cluster
def test_an_export_replaces_what_was_there_and_in_a_store_without_a_rename(
    manifest, store, tmp_path, monkeypatch
):
    exported(manifest, tmp_path / "model", 1.0)
    exported(manifest, tmp_path / "model", 2.0)
    assert values(tmp_path / "model") == {2.0}
    monkeypatch.setattr(tf.io.gfile, "rename", None)  # there it is a copy of every file
    exported(manifest, store / "model", 2.0)
    assert values(store / "model") == {2.0} and not (store / "model.partial").exists()


def test_an_export_that_fails_leaves_what_was_there_and_is_an_error_of_the_system(
    manifest, tmp_path, monkeypatch
):
    exported(manifest, tmp_path / "model", 1.0)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(provenance, "write", mock.Mock(side_effect=OSError("the disk is full")))
        exported(manifest, tmp_path / "model", 2.0)
    assert values(tmp_path / "model") == {1.0}
    with pytest.raises(OSError, match="not implemented"):
        exported(manifest, memory_store.AWAY, 2.0)
