"""Whatever is read and written may lie in an object store, whose files are TensorFlow's."""

import numpy as np
import pytest
from numbered import dataset, picture, provided

from common.errors import UserError
from common.manifest import Manifest
from common.storage.files import copy_tree
from trainer.data import records
from trainer.data.shards import verify

READS = {
    "verified": lambda manifest, place, _: verify(manifest, str(place), "train"),
    "in order": lambda manifest, place, _: [*records.batches(manifest, str(place), "train", 7)],
    "copied": provided,
}


@pytest.fixture(params=[None, [picture(4 + i % 20, 30 - i % 20) for i in range(40)]])
def data(request, tmp_path, store):
    """A dataset here, of equal records or of others, and a copy of it in the store."""
    dataset(tmp_path / "data", 40, files=request.param)
    copy_tree(tmp_path / "data", store / "data")
    return tmp_path / "data", store / "data"


def test_dataset_in_store_reads_as_here(data, tmp_path):
    manifest, here = (Manifest.load(place) for place in data)
    assert manifest == here
    for part in ({}, {"start": 7, "stop": 33}):
        both = (records.batches(manifest, str(place), "train", 7, **part) for place in data)
        for a, b in zip(*both, strict=True):
            assert all(np.array_equal(a[name], b[name]) for name in a)
    copies = provided(manifest, data[1], tmp_path / "cache")
    for name in manifest.split("train").checksums:
        assert (copies / name).read_bytes() == (data[0] / name).read_bytes()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", ["cut", "removed", "other bytes"])
def test_changed_file_of_store_is_named(data, tmp_path, read, change):
    manifest = Manifest.load(data[1])
    path = data[1] / manifest.split("train").shards[1].file
    content = path.read_bytes()
    path.unlink()
    if change != "removed":
        path.write_bytes(content[:-1] + (b"" if change == "cut" else bytes([content[-1] ^ 1])))
    with pytest.raises(UserError, match=path.name):
        READS[read](manifest, data[1], tmp_path / "cache")
    assert not [*(tmp_path / "cache").rglob(f"{path.name}*")]
