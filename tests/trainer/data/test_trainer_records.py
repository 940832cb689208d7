import functools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numbered import dataset, picture
from opened import read_all

from common.errors import UserError
from common.manifest import Manifest
from components.convert.sources.registry import find_source
from trainer.data import records
from trainer.evaluation import replica_batches


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbered") / "data"
    dataset(directory, 40)
    return directory


def test_all_records_of_all_splits_are_the_source(digits):
    manifest = Manifest.load(digits)
    read = [records.load(manifest, str(digits), split) for split in ("train", "validation", "test")]
    images = np.concatenate([part["image"].numpy() for part in read])
    labels = np.concatenate([part["label"].numpy() for part in read])
    source = read_all(find_source("digits")).splits["train"]
    assert labels.dtype == np.int64
    key = lambda image, label: image.reshape(len(image), -1).astype(int) @ np.arange(1, 65) * 10 + label  # noqa: E731
    assert sorted(key(images, labels)) == sorted(key(source["image"][:], source["label"]))


@hypothesis.settings(max_examples=hypothesis.settings.default.max_examples // 4)
@hypothesis.given(st.integers(1, 41), st.integers(1, 9))
def test_the_parts_of_all_replicas_are_the_batches_of_one(numbered, batch_size, replicas):
    manifest = Manifest.load(numbered)
    manifest.splits["validation"] = manifest.splits["train"]
    read = functools.partial(replica_batches, manifest, str(numbered), batch_size, replicas=replicas)
    rounds = [list(read(replica=replica)) for replica in range(replicas)]
    found = [batch["label"].numpy().tolist() for batches in rounds for batch, counts in batches if counts]
    assert found == [list(range(40))[i : i + batch_size] for i in range(0, 40, batch_size)]
    assert {len(batches) for batches in rounds} == {-(-len(found) // replicas)}


@pytest.mark.parametrize(("offset", "start", "sound"), [(20, 5, 14), (-20, 28, 35)], ids=["head", "record"])
def test_damaged_part_is_refused(tmp_path, offset, start, sound):
    manifest = dataset(tmp_path / "data", 40, shape=(64, 64, 3))  # files longer than what they are known by
    file = tmp_path / "data" / manifest.split("test").shards[offset < 0].file
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)
    read = functools.partial(records.batches, manifest, str(tmp_path / "data"), "test", 5)
    assert list(read(start=sound, stop=sound + 5))
    with pytest.raises(UserError, match=f"{file.name} is not the file that the manifest lists"):
        list(read(start=start - 5, stop=start))


def test_batches_of_image_files_are_decoded(tmp_path):
    files = [picture(5 + i, 20 - i, kind) for i in range(6) for kind in ("PNG", "JPEG")]
    manifest = dataset(tmp_path / "data", 12, files=files)
    whole = records.load(manifest, str(tmp_path / "data"), "test")
    assert whole["image"].numpy().tolist() == files
    batches = list(records.batches(manifest, str(tmp_path / "data"), "test", 5))
    assert [batch["image"].shape for batch in batches] == [(5, 2, 3, 1), (5, 2, 3, 1), (2, 2, 3, 1)]
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == list(range(12))
