"""Whatever is read and written may lie in an object store, whose files are TensorFlow's."""

import pytest
from numbered import dataset, provided

from common.manifest import Manifest
from common.storage.files import copy_tree
from tests.errors import user_error
from trainer.data import records
from trainer.data.shards import verify

READS = {
    "verified": lambda manifest, place, _: verify(manifest, str(place), "train"),
    "in order": lambda manifest, place, _: [*records.batches(manifest, str(place), "train", 7)],
    "copied": provided,
}


@pytest.fixture
def data(tmp_path, store):
    """A dataset in the store."""
    dataset(tmp_path / "data", 40)
    copy_tree(tmp_path / "data", store / "data")
    return store / "data"


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", ["cut", "removed", "other bytes"])
def test_changed_file_of_store_is_named(data, tmp_path, read, change):
    manifest = Manifest.load(data)
    READS[read](manifest, data, tmp_path / "whole")
    path = data / manifest.split("train").shards[1].file
    content = path.read_bytes()
    path.unlink()
    if change != "removed":
        path.write_bytes(content[:-1] + (b"" if change == "cut" else bytes([content[-1] ^ 1])))
    with user_error(path.name):
        READS[read](manifest, data, tmp_path / "cache")
    assert not [*(tmp_path / "cache").rglob(f"{path.name}*")]
