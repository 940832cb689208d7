import itertools
import operator
import pathlib
import re

import numpy as np
import pytest
from dataset_files import idx_bytes, make_idx, read_split
from opened import read_all

from common.errors import UserError
from common.manifest import Manifest
from components.convert import warnings
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import find_source

_PAIR = operator.itemgetter("image", "label")


def _assert_holds_source(options: Options, manifest: Manifest) -> None:
    """Checks that the directory holds what the manifest says and no more, and every record of the source once."""
    directory = pathlib.Path(options.output)
    assert Manifest.load(directory) == manifest
    files = {name for split in manifest.splits.values() for name in split.checksums}
    assert {path.name for path in directory.iterdir()} == {"manifest.json", "dataset.html", *files}
    records = {split: read_split(directory, split) for split in manifest.splits}
    for name, split in manifest.splits.items():
        assert all(shard.examples for shard in split.shards)
        assert all((directory / shard.file).stat().st_size == shard.bytes for shard in split.shards)
        labels = [record["label"] for record in records[name]]
        assert split.examples == len(labels) == sum(shard.examples for shard in split.shards)
        assert (
            list(split.class_histogram)
            == np.bincount(labels, minlength=len(manifest.class_names)).tolist()
        )
    source = read_all(find_source(options.dataset), options.source)
    for native, columns in reversed(
        source.splits.items()
    ):  # What is not the source's test split is from train.
        stored = records.pop("test") if native == "test" else itertools.chain(*records.values())
        pairs = zip(columns["image"], columns["label"].tolist(), strict=True)
        assert sorted(map(_PAIR, stored)) == sorted(
            (image.tobytes(), label) for image, label in pairs
        )


def test_convert_digits(tmp_path):
    options = Options(output=str(tmp_path / "out"))
    manifest = convert(options)
    _assert_holds_source(options, manifest)
    assert manifest.feature("image").shape == (8, 8, 1) and manifest.feature(
        "image"
    ).value_range == (0, 16)
    assert manifest.class_names == tuple("0123456789") and manifest.label == "label"
    assert manifest.splits["train"].shards[0].file == "train-00000.tfrecord"
    assert str(tmp_path) not in manifest.dump()
    other = convert(Options(output=str(tmp_path / "seed"), split_seed=1))
    assert other.fingerprint != manifest.fingerprint


def test_shards_in_proportion(tmp_path):
    make_idx(tmp_path / "source", train=1000, test=100)
    source = {"dataset": "idx", "source": str(tmp_path / "source"), "validation_fraction": 0}
    for shards, expected in ((40, [40, 0, 4]), (1, [1, 0, 1])):
        options = Options(**source, output=str(tmp_path / str(shards)), shards=shards)
        manifest = convert(options)
        _assert_holds_source(options, manifest)
        assert [len(split.shards) for split in manifest.splits.values()] == expected


@pytest.mark.parametrize("packed", [False, True])
def test_shards_by_size(tmp_path, packed):
    make_idx(tmp_path / "source", size=(28, 28), packed=packed, train=4000, test=300)
    options = Options(
        dataset="idx", source=str(tmp_path / "source"), output=str(tmp_path / "out"), shard_mb=0.5
    )
    splits = convert(options).splits
    sizes = [shard.bytes for shard in splits["train"].shards]
    assert 5 <= len(sizes) <= 9 and max(sizes) < 700_000 and len(splits["test"].shards) == 1


def test_training_examples_are_needed(tmp_path):
    make_idx(tmp_path / "source", train=3)
    place = {"source": str(tmp_path / "source"), "output": str(tmp_path / "out")}
    with pytest.raises(UserError, match="'idx': there are no training examples"):
        convert(Options(dataset="idx", **place, test_fraction=0.9999999))
    assert not (tmp_path / "out").exists()


def test_repeated_records_are_warned_of(tmp_path, capsys, monkeypatch):
    images, labels = make_idx(tmp_path / "source", train=200, packed=False)["train"]
    for kind, values in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        (tmp_path / "source" / f"t10k-{kind}").write_bytes(idx_bytes(values[:20]))
    source = {"dataset": "idx", "source": str(tmp_path / "source"), "validation_fraction": 0}
    convert(Options(**source, output=str(tmp_path / "out")))
    printed = capsys.readouterr().out
    assert "warning: validation: no examples" in printed
    assert "warning: 20 different records are in both train and test" in printed
    hashes = np.random.default_rng(0).integers(0, 2**64, 4000, np.uint64)
    for split, part in (("train", hashes), ("test", hashes[:2000])):
        (tmp_path / "out" / f"{split}-00000.hashes").write_bytes(part.tobytes())
    monkeypatch.setattr(
        warnings, "MOST_COMPARED", 100
    )  # Of the 220 records of the manifest; so it compares a third.
    warnings.print_warnings(Manifest.load(tmp_path / "out"), str(tmp_path / "out"))
    about = re.search(
        r"warning: about ([\d,]+) different records are in both", capsys.readouterr().out
    )
    assert 1800 < int(about[1].replace(",", "")) < 2200
