import dataclasses

import numbered
import numpy as np
import pytest

from common.provenance import TrainedOn
from trainer import warm_start
from trainer.data.shards import content_hashes

LATER = np.random.default_rng(0).integers(0, 2**64, 500, np.uint64)


@pytest.fixture
def manifest(tmp_path):
    return numbered.dataset(tmp_path / "data", 500)


def all_of(manifest, directory):
    return np.concatenate([*content_hashes(manifest, str(directory), "train")])


def test_saved_records_are_known_again(manifest, tmp_path, store):
    hashes = all_of(manifest, tmp_path / "data")
    assert len(np.unique(hashes)) == 500
    other = dataclasses.replace(manifest, name="other")
    for directory in (tmp_path, store):
        TrainedOn.of(manifest, [hashes[:300], hashes[300:]]).save(str(directory))
        again = TrainedOn.load(str(directory))
        assert (
            again.unseen(other, np.append(hashes, LATER)).tolist() == [False] * 500 + [True] * 500
        )
        assert again.unseen(
            manifest, hashes
        ).all()  # the dataset's own splits say what is not known
    assert TrainedOn.load(str(tmp_path / "gone")) is None


def test_records_of_before_count_too_but_of_another_form(manifest, tmp_path):
    hashes, second = (
        all_of(manifest, tmp_path / "data"),
        dataclasses.replace(manifest, origin="second"),
    )
    third = dataclasses.replace(manifest, origin="third")
    first = TrainedOn.of(manifest, [hashes])
    both = TrainedOn.of(second, [LATER]).and_before(first)
    assert not both.unseen(third, np.concatenate([hashes, LATER])).any()
    assert not both.unseen(second, hashes).any() and both.unseen(second, LATER).all()
    features = tuple(dataclasses.replace(f, unit="lux") for f in manifest.features)
    bright = dataclasses.replace(manifest, features=features)
    assert TrainedOn.of(bright, [LATER]).and_before(first).unseen(bright, hashes).all()


@pytest.mark.parametrize(
    ("saved", "given"), [("", "best/"), ("assets.extra", ""), (None, ""), ("", "a.keras")]
)
def test_records_of_a_source_of_weights(manifest, tmp_path, saved, given):
    learnt = TrainedOn.of(manifest, [all_of(manifest, tmp_path / "data")])
    source = tmp_path / "source"
    for name in ("best", "assets.extra"):
        (source / name).mkdir(parents=True)
    if saved is not None:
        learnt.save(str(source / saved))
    found = warm_start.learnt_from(f"{source}/{given}" if given else str(source))
    assert (found and found.hashes.keys()) == (
        None if saved is None or "keras" in given else learnt.hashes.keys()
    )
