"""Exports replace what was there, and answer what the model in training does."""

from unittest import mock

import numbered
import numpy as np
import pytest
import tensorflow as tf
from saved_models import export_untrained

from common import provenance
from components.convert.convert import convert
from components.convert.options import Options
from trainer.data import records

SIZES = [(24, 32), (40, 60), (61, 40), (12, 16), (7, 90), (90, 7), (480, 640)]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return numbered.dataset(tmp_path_factory.mktemp("data") / "numbered", 8, classes=2)


def export_network(manifest, directory, seed=1):
    return export_untrained(manifest, directory, "numbered:network", seed)


def weight_of(directory):
    return tf.saved_model.load(str(directory)).variables[0].numpy().min()


def test_failed_export_keeps_model(manifest, tmp_path, monkeypatch):
    before = weight_of(export_network(manifest, tmp_path / "model"))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(provenance, "write", mock.Mock(side_effect=OSError("the disk is full")))
        export_network(manifest, tmp_path / "model", 2)
    assert weight_of(tmp_path / "model") == before
    with pytest.raises(OSError, match="not implemented"):
        export_network(manifest, "s3://bucket/away")  # TensorFlow knows no such store


@pytest.mark.cluster
@pytest.mark.parametrize(("encoding", "of_spread"), [("raw", 0.02), ("source", 0)])
def test_image_files_are_answered_as_pixels(tmp_path, encoding, of_spread):
    """As what the converter, or the reader, makes of the same files."""
    for i, size in enumerate(SIZES * 4):
        kind = ("PNG", "JPEG")[i // len(SIZES) % 2]
        path = tmp_path / "files" / "ab"[i % 2] / f"{i}.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(numbered.picture(*size, kind, seed=i))
    options = {"source": str(tmp_path / "files"), "image_size": "24x32", "test_fraction": 0.0}
    source, manifest = (
        convert(Options(dataset="images", output=f"{tmp_path}/{form}", encoding=form, **options))
        for form in ("source", encoding)
    )
    files = records.load(source, f"{tmp_path}/source", "train")["image"]
    pixels = records.batches(manifest, f"{tmp_path}/{encoding}", "train", 500)
    export_network(manifest, tmp_path / "model")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    answers = signatures["serving_default"](image=next(pixels)["image"])  # in the same order
    of_files = signatures["image_bytes"](image_bytes=files)
    expected, actual = answers["probabilities"].numpy(), of_files["probabilities"]
    spread = np.ptp(expected[:, 0])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=of_spread * spread)
    assert of_files.keys() == answers.keys() and spread > 0.01


@pytest.mark.cluster
def test_odd_pixels_are_not_of_files(images, tmp_path):
    export_network(images, tmp_path / "model")  # of numbers from 0 to 16
    assert [*tf.saved_model.load(str(tmp_path / "model")).signatures] == ["serving_default"]
