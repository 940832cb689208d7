import hypothesis
import hypothesis.strategies as st
import pytest
from numbered import dataset

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
