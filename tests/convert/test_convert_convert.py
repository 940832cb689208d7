import pathlib

import numpy as np
import pytest
from divided import drawn, whole

from common.errors import UserError
from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources import idx
from components.convert.sources.registry import find_reader


def _assert_holds(directory: pathlib.Path, manifest: Manifest, options: Options, held) -> None:
    """The directory holds just what the manifest says, with the source's values in the source's order."""
    assert Manifest.load(directory) == manifest
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    assert {path.name for path in directory.iterdir()} == {
        "manifest.json",
        "dataset.html",
        *(name for split in manifest.splits.values() for name in split.checksums),
    }
    assert all((directory / shard.file).stat().st_size == shard.bytes for shard in shards)
    source = whole(find_reader(options.dataset), options.source)
    fractions = {"validation_fraction": options.validation_fraction, "test_fraction": options.test_fraction}
    if "test" in source.splits:
        fractions["test_fraction"] = 0
    parts = drawn(len(source.splits["train"]["label"]), **fractions, seed=options.split_seed)
    for name, split in manifest.splits.items():
        native = name if name in source.splits else "train"
        rows = parts[name] if native == "train" else np.arange(len(source.splits[native]["label"]))
        images, labels = (source.splits[native][feature][rows] for feature in ("image", "label"))
        expected = [{"image": i.tobytes(), "label": k} for i, k in zip(images, labels.tolist(), strict=True)]
        assert held(directory, name) == expected
        assert split.examples == len(rows) == sum(shard.examples for shard in split.shards)
        assert list(split.class_histogram) == np.bincount(labels, minlength=len(manifest.class_names)).tolist()
        assert all(shard.examples for shard in split.shards)


def test_digits(tmp_path, held):
    options = Options(output=str(tmp_path / "out"), shards=8)
    manifest = convert(options)
    _assert_holds(tmp_path / "out", manifest, options, held)
    assert manifest.feature("image").shape == (8, 8, 1) and manifest.feature("image").value_range == (0, 16)
    assert manifest.class_names == tuple("0123456789") and manifest.label == "label"
    assert [split.examples for split in manifest.splits.values()] == [1307, 144, 346]
    assert manifest.splits["train"].shards[7].file == "train-00007-of-00008.tfrecord"
    assert str(tmp_path) not in manifest.dump()
    other = convert(Options(output=str(tmp_path / "seed"), split_seed=1))
    assert other.fingerprint != manifest.fingerprint


def test_other_splits_get_shards_in_proportion_and_empty_ones_none(tmp_path, make_idx):
    make_idx(tmp_path / "source", train=100, test=10)
    source = {"dataset": "idx", "source": str(tmp_path / "source"), "validation_fraction": 0}
    manifest = convert(Options(**source, output=str(tmp_path / "a"), shards=40))
    assert [len(split.shards) for split in manifest.splits.values()] == [40, 0, 4]
    assert manifest.splits["validation"].examples == 0
    manifest = convert(Options(**source, output=str(tmp_path / "b"), shards=1))
    assert [len(split.shards) for split in manifest.splits.values()] == [1, 0, 1]
    with pytest.raises(UserError, match="--shards 101: there are only 100 training examples"):
        convert(Options(**source, output=str(tmp_path / "c"), shards=101))


@pytest.mark.parametrize("packed", [False, True])
def test_without_a_number_of_shards_their_size_decides(tmp_path, monkeypatch, make_idx, held, packed):
    monkeypatch.setattr(idx, "_BLOCK_BYTES", 50_000)
    make_idx(tmp_path / "source", size=(28, 28), packed=packed, train=4000, test=300)
    options = Options(dataset="idx", source=str(tmp_path / "source"), output=str(tmp_path / "out"), shard_mb=0.5)
    manifest = convert(options)
    _assert_holds(tmp_path / "out", manifest, options, held)
    sizes = [shard.bytes for shard in manifest.splits["train"].shards]
    assert 5 <= len(sizes) <= 9 and max(sizes) < 700_000 and len(manifest.splits["test"].shards) == 1
