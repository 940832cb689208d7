import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from numbered import dataset, picture

from trainer.data import records
from trainer.evaluation import replica_batches


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbered") / "data"
    manifest = dataset(directory, 40)
    manifest.splits["validation"] = manifest.splits["train"]
    return manifest, str(directory)


@hypothesis.settings(max_examples=hypothesis.settings.default.max_examples // 4)
@hypothesis.given(st.integers(1, 41), st.integers(1, 9))
@pytest.mark.long
def test_replica_batches_are_those_of_one(numbered, size, replicas):
    """The parts of all replicas are the batches of one, and all take equally many rounds."""
    rounds = [[*replica_batches(*numbered, size, i, replicas)] for i in range(replicas)]
    labels = [b["label"].numpy().tolist() for batches in rounds for b, counts in batches if counts]
    assert labels == [list(range(40))[i : i + size] for i in range(0, 40, size)]
    assert {len(batches) for batches in rounds} == {-(-len(labels) // replicas)}


def test_batches_of_files_are_decoded(tmp_path):
    files = [picture(24, 32, kind, i) for i in range(6) for kind in ("PNG", "JPEG")]
    manifest = dataset(tmp_path / "data", 12, files=files, shape=(24, 32, 3))
    batches = list(records.batches(manifest, str(tmp_path / "data"), "test", 5))
    images = np.concatenate([batch["image"] for batch in batches])
    np.testing.assert_array_equal(images, [tf.io.decode_image(file, 3) for file in files])
    assert np.concatenate([batch["label"] for batch in batches]).tolist() == list(range(12))
