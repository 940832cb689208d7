import numpy as np
import pytest
from numbered import dataset, picture

from components.convert.sources.registry import find_reader
from trainer.base.manifest import Manifest
from trainer.data import records


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbered") / "data"
    dataset(directory, 40)
    return directory


def test_all_records_of_all_splits_are_the_source(digits):
    manifest = Manifest.load(digits)
    read = [records.resident(manifest, str(digits), split) for split in ("train", "validation", "test")]
    images = np.concatenate([part["image"].numpy() for part in read])
    labels = np.concatenate([part["label"].numpy() for part in read])
    source = find_reader("digits").read(None).splits["train"]
    assert labels.dtype == np.int64
    key = lambda image, label: image.reshape(len(image), -1).astype(int) @ np.arange(1, 65) * 10 + label  # noqa: E731
    assert sorted(key(images, labels)) == sorted(key(source["image"][:], source["label"]))


@pytest.mark.parametrize("batch_size", [1, 13, 1000])
def test_batches_are_the_split_in_its_order(numbered, batch_size):
    manifest = Manifest.load(numbered)
    whole = records.resident(manifest, str(numbered), "train")
    batches = list(records.batches(manifest, str(numbered), "train", batch_size))
    assert [len(batch["label"]) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert whole["label"].numpy().tolist() == list(range(40))
    for name, column in whole.items():
        assert np.array_equal(np.concatenate([batch[name] for batch in batches]), column)


def test_batches_of_image_files_are_decoded(tmp_path):
    files = [picture(5 + i, 20 - i, kind) for i in range(6) for kind in ("PNG", "JPEG")]
    manifest = dataset(tmp_path / "data", 12, files=files)
    whole = records.resident(manifest, str(tmp_path / "data"), "test")
    assert whole["image"].numpy().tolist() == files
    batches = list(records.batches(manifest, str(tmp_path / "data"), "test", 5))
    assert [batch["image"].shape for batch in batches] == [(5, 2, 3, 1), (5, 2, 3, 1), (2, 2, 3, 1)]
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == list(range(12))
