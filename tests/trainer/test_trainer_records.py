from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.convert.source import find_reader
from trainer.errors import UserError
from trainer.manifest import Manifest

tf = pytest.importorskip("tensorflow")
from trainer import records  # noqa: E402


def indices(step: int, *, examples: int, batch: int, first: int = 0, count: int | None = None, seed: int = 0):
    count = batch if count is None else count
    return records.order(
        tf.constant(step, tf.int64), seed=seed, examples=examples, global_batch=batch, first=first, count=count
    ).numpy()


def test_all_records_of_all_splits_are_the_source(digits):
    manifest = Manifest.load(digits)
    read = [records.resident(manifest, str(digits), split) for split in ("train", "validation", "test")]
    images = np.concatenate([part["image"].numpy() for part in read])
    labels = np.concatenate([part["label"].numpy() for part in read])
    source = find_reader("digits").read(None).splits["train"]
    assert labels.dtype == np.int64
    key = lambda image, label: image.reshape(len(image), -1).astype(int) @ np.arange(1, 65) * 10 + label  # noqa: E731
    assert sorted(key(images, labels)) == sorted(key(source["image"], source["label"]))


@settings(max_examples=25, deadline=None)
@given(examples=st.integers(1, 50), batch=st.integers(1, 70), seed=st.integers(0, 2**31), epochs=st.integers(1, 3))
def test_every_epoch_is_a_permutation_of_the_split(examples, batch, seed, epochs):
    steps = -(-examples * epochs // batch)
    seen = np.concatenate([indices(s, examples=examples, batch=batch, seed=seed) for s in range(steps)])
    for epoch in range(epochs):
        part = seen[epoch * examples : (epoch + 1) * examples]
        assert sorted(part) == list(range(examples))


def test_no_epoch_resembles_another():
    examples = 54_000
    epochs = np.array([indices(0, examples=examples, batch=examples * 8).reshape(8, examples)])[0]
    correlations = np.corrcoef(epochs) - np.eye(8)
    assert np.abs(correlations).max() < 5 / np.sqrt(examples)


def test_epochs_and_seeds_differ_in_order():
    a, b = indices(0, examples=64, batch=64), indices(1, examples=64, batch=64)
    c = indices(0, examples=64, batch=64, seed=1)
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, c)


@settings(max_examples=25, deadline=None)
@given(replicas=st.integers(1, 7), batch=st.integers(7, 64), step=st.integers(0, 10**6))
def test_the_order_does_not_depend_on_the_number_of_replicas(replicas, batch, step):
    whole = indices(step, examples=1000, batch=batch)
    shares = [records.share(r, replicas=replicas, global_batch=batch) for r in range(replicas)]
    parts = [indices(step, examples=1000, batch=batch, first=first, count=count) for first, count in shares]
    assert np.array_equal(np.concatenate(parts), whole)
    counts = [count for _, count in shares]
    assert max(counts) - min(counts) <= 1


def test_a_wrong_or_missing_shard_is_named(digits, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(digits, copy)
    manifest = Manifest.load(copy)
    records.verify(manifest, str(copy), "train")
    shard = copy / manifest.split("train").shards[1].file
    content = bytearray(shard.read_bytes())
    content[1234] ^= 1
    shard.write_bytes(content)
    with pytest.raises(UserError, match=f"{shard.name} is not the file"):
        records.verify(manifest, str(copy), "train")
    shard.unlink()
    with pytest.raises(UserError, match=f"{shard.name} is missing"):
        records.verify(manifest, str(copy), "train")
