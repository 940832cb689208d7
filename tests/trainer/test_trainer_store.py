"""Whatever is read and written may lie in an object store, whose files are TensorFlow's."""

import pathlib

import numpy as np
import pytest
from numbered import dataset, picture

from common.errors import UserError
from common.manifest import Manifest
from common.storage.files import copy_tree
from trainer.data import records
from trainer.data.placement import Choice, provide_files
from trainer.data.shards import verify


def copied(manifest: Manifest, place: str, cache: str) -> pathlib.Path:
    return pathlib.Path(provide_files(Choice(place, "mapped", "", cache), manifest).data_dir)


READS = {
    "verified": lambda manifest, place, _: verify(manifest, place, "train"),
    "in order": lambda manifest, place, _: list(records.batches(manifest, place, "train", 7)),
    "copied": copied,
}


@pytest.fixture(params=["equal records", "records that differ"])
def data(request, tmp_path, store):
    """A dataset here, and a copy of it in the store."""
    differ = [picture(4 + i, 30 - i, seed=i) for i in range(20)] * 2
    dataset(tmp_path / "data", 40, files=differ if request.param == "records that differ" else None)
    copy_tree(tmp_path / "data", store / "data")
    return tmp_path / "data", store / "data"


def test_dataset_in_store_reads_as_here(data, tmp_path):
    here, there = data
    manifest = Manifest.load(there)
    assert manifest == Manifest.load(here)
    verify(manifest, str(there), "train")
    for part in ({}, {"start": 7, "stop": 33}):
        both = (records.batches(manifest, str(place), "train", 7, **part) for place in data)
        for a, b in zip(*both, strict=True):
            assert all(np.array_equal(a[name], b[name]) for name in a)
    copies = copied(manifest, str(there), str(tmp_path / "cache"))
    for name in manifest.split("train").checksums:
        assert (copies / name).read_bytes() == (here / name).read_bytes()


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", ["cut", "removed", "no file", "other bytes"])
def test_changed_file_of_store_is_named(data, tmp_path, read, change):
    _, there = data
    manifest = Manifest.load(there)
    path = there / manifest.split("train").shards[1].file
    content = path.read_bytes()
    path.unlink()
    if change == "no file":
        path.mkdir()  # TensorFlow cannot read it, as a store that is down
    elif change != "removed":
        last = b"" if change == "cut" else bytes([content[-1] ^ 1])
        path.write_bytes(content[:-1] + last)
    message = f"{path.name} cannot be read" if change == "no file" else path.name
    with pytest.raises(UserError, match=message):
        READS[read](manifest, str(there), str(tmp_path / "cache"))
    assert not list((tmp_path / "cache").rglob(f"{path.name}*"))
