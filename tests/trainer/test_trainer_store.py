"""Whatever is read and written may lie in an object store, whose files are TensorFlow's."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from numbered import dataset, picture

from common.errors import UserError, store_errors
from common.manifest import Manifest
from common.storage.files import copy_tree, write_text
from trainer.data import records
from trainer.data.placement import Choice, provide_files
from trainer.data.shards import verify
from trainer.job import done, identity


def copied(manifest: Manifest, place: str, cache: str) -> pathlib.Path:
    return pathlib.Path(
        provide_files(Choice(place, "mapped", "as asked for", cache), manifest).data_dir
    )


READS = {
    "verified": lambda manifest, place, _: verify(manifest, place, "train"),
    "in order": lambda manifest, place, _: list(records.batches(manifest, place, "train", 7)),
    "copied": copied,
}


@pytest.fixture(params=["equal records", "records that differ"])
def data(request, tmp_path, store):
    """A dataset here, and a copy of it in the store."""
    files = (
        [picture(4 + i, 30 - i, seed=i) for i in range(20)] * 2
        if request.param == "records that differ"
        else None
    )
    dataset(tmp_path / "data", 40, files=files)
    copy_tree(tmp_path / "data", store / "data")
    return tmp_path / "data", store / "data"


@pytest.mark.parametrize(
    ("error", "usual"),
    [
        ("NotFoundError", FileNotFoundError),
        ("OutOfRangeError", EOFError),
        ("UnavailableError", ConnectionError),
        ("AbortedError", ConnectionError),
        ("PermissionDeniedError", OSError),
    ],
)
def test_errors_of_tensorflow_become_the_usual_ones_and_others_stay(error, usual):
    with pytest.raises(usual, match="what it says"), store_errors():
        raise getattr(tf.errors, error)(None, None, "what it says")
    with pytest.raises(ZeroDivisionError), store_errors():
        raise ZeroDivisionError


def test_a_dataset_in_a_store_is_read_as_one_here(data, tmp_path):
    here, there = data
    manifest = Manifest.load(there)
    assert manifest == Manifest.load(here)
    verify(manifest, str(there), "train")
    for part in ({}, {"start": 7, "stop": manifest.splits["train"].examples - 7}):
        one, other = (
            list(records.batches(manifest, str(place), "train", 7, **part)) for place in data
        )
        for a, b in zip(one, other, strict=True):
            assert all(np.array_equal(a[name], b[name]) for name in a)
    copies = copied(manifest, str(there), str(tmp_path / "cache"))
    assert all(
        (copies / name).read_bytes() == (here / name).read_bytes()
        for name in manifest.split("train").checksums
    )


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", ["cut", "emptied", "removed", "no file", "other bytes"])
def test_a_file_of_a_store_that_is_not_the_manifests_is_named(data, tmp_path, read, change):
    here, there = data
    manifest = Manifest.load(there)
    shard = manifest.split("train").shards[1].file
    content = (here / shard).read_bytes()
    (there / shard).unlink()
    if change == "no file":
        (there / shard).mkdir()  # TensorFlow cannot read it, as a store that is down
    elif change != "removed":
        changed = {
            "cut": content[:-1],
            "emptied": b"",
            "other bytes": content[:-1] + bytes([content[-1] ^ 1]),
        }[change]
        (there / shard).write_bytes(changed)
    with pytest.raises(
        UserError, match=f"{shard} cannot be read" if change == "no file" else shard
    ):
        READS[read](manifest, str(there), str(tmp_path / "cache"))


@pytest.mark.parametrize("where", ["here", "in a store"])
def test_a_job_directory_is_for_what_it_was_first_started_for_and_keeps_what_is_told(
    tmp_path, store, where
):
    directory = (tmp_path if where == "here" else store) / "job"
    job, facts = str(directory), {"seed": 0, "model": "cnn", "fingerprint": "a"}
    directory.mkdir()
    identity.check(job, {"seed": 1})  # a new one is for anything
    assert (
        identity.begin(job, {"identity": facts, "settings": {}, "horizon_steps": 7}, write=False)[
            "horizon_steps"
        ]
        == 7
    )
    assert identity.first_start(job) == {}
    for steps in (8, 9):
        record = {"identity": facts, "settings": {}, "horizon_steps": steps}
        assert identity.begin(job, record, write=True)["horizon_steps"] == 8
    with pytest.raises(UserError, match=r"fingerprint: 'a' -> 'b'; seed: 0 -> 1"):
        identity.check(job, {**facts, "seed": 1, "fingerprint": "b"})
    there = {path.name for path in directory.iterdir()}
    with pytest.raises(UnicodeEncodeError):
        write_text(directory / identity.FILE, "new \ud800")  # no such character in UTF-8
    assert {path.name for path in directory.iterdir()} == there
    identity.check(job, facts)  # which are as they were
    ended = {"accuracy": 0.25, "validation": {}, "seconds": 1.5, "examples_per_s": 10.0}
    assert done.load(job) is None
    (record := done.Done(step=3, epochs=0.5, loss=0.5, **ended)).save(job)
    assert done.load(job) == record
