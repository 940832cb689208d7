import functools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numbered import damage, dataset, picture

from common.errors import UserError
from common.manifest import Manifest
from trainer.data import records
from trainer.evaluation import replica_batches


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbered") / "data"
    dataset(directory, 40)
    return directory


@hypothesis.settings(max_examples=hypothesis.settings.default.max_examples // 4)
@hypothesis.given(st.integers(1, 41), st.integers(1, 9))
def test_replica_batches_are_those_of_one(numbered, batch_size, replicas):
    """The parts of all replicas are the batches of one, and all replicas take part in equally many rounds."""
    manifest = Manifest.load(numbered)
    manifest.splits["validation"] = manifest.splits["train"]
    rounds = [
        list(replica_batches(manifest, str(numbered), batch_size, replica, replicas))
        for replica in range(replicas)
    ]
    labels = [
        batch["label"].numpy().tolist() for batches in rounds for batch, counts in batches if counts
    ]
    assert labels == [list(range(40))[i : i + batch_size] for i in range(0, 40, batch_size)]
    assert {len(batches) for batches in rounds} == {-(-len(labels) // replicas)}


@pytest.mark.parametrize(
    ("position", "start", "intact"), [(20, 0, 9), (-20, 23, 30)], ids=["head", "record"]
)
def test_damaged_part_is_error(tmp_path, position, start, intact):
    manifest = dataset(
        tmp_path / "data", 40, shape=(64, 64, 3)
    )  # files longer than the part that identifies them
    file = tmp_path / "data" / manifest.split("test").shards[position < 0].file
    damage(file, position)
    read = functools.partial(records.batches, manifest, str(tmp_path / "data"), "test", 5)
    assert list(read(start=intact + 5, stop=intact + 10))
    with pytest.raises(UserError, match=f"{file.name} is not the file that the manifest lists"):
        list(read(start=start, stop=start + 5))


def test_batches_of_files_are_decoded(tmp_path):
    files = [picture(5 + i, 20 - i, kind) for i in range(6) for kind in ("PNG", "JPEG")]
    manifest = dataset(tmp_path / "data", 12, files=files)
    assert records.load(manifest, str(tmp_path / "data"), "test")["image"].numpy().tolist() == files
    batches = list(records.batches(manifest, str(tmp_path / "data"), "test", 5))
    assert [batch["image"].shape[0] for batch in batches] == [5, 5, 2]
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == list(range(12))
