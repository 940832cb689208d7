import numpy as np
import pytest
from dataset_files import convert_to, idx_bytes, make_idx, read_split
from opened import read_all

from common.errors import UserError
from common.manifest import Manifest
from components.convert.sources.registry import find_source


@pytest.mark.parametrize(
    ("shards", "expected"), [(40, [40, 0, 4]), (1, [1, 0, 1])], ids=["many", "one"]
)
def test_dataset_holds_its_source(tmp_path, shards, expected):
    make_idx(tmp_path / "source", size=(70, 100), train=1000, test=100)  # Of several blocks.
    source, out = tmp_path / "source", tmp_path / "out"
    options = {"dataset": "idx", "source": source, "shards": shards}
    manifest = convert_to(out, **options, validation_fraction=0)
    assert Manifest.load(out) == manifest and str(tmp_path) not in manifest.dump()
    assert [len(split.shards) for split in manifest.splits.values()] == expected
    files = {name for split in manifest.splits.values() for name in split.checksums}
    assert {path.name for path in out.iterdir()} == {"manifest.json", "dataset.html", *files}
    for native, columns in read_all(find_source("idx"), str(source)).splits.items():
        split, labels = manifest.splits[native], columns["label"].tolist()
        images = [image.tobytes() for image in columns["image"]]
        records = [(record["image"], record["label"]) for record in read_split(out, native)]
        assert sorted(records) == sorted(zip(images, labels, strict=True))
        assert split.examples == len(labels) == sum(shard.examples for shard in split.shards)
        assert split.class_histogram == tuple(np.bincount(labels))


@pytest.mark.parametrize("packed", [False, True])
def test_shards_by_size(tmp_path, packed):
    make_idx(tmp_path / "source", size=(28, 28), packed=packed, train=4000, test=300)
    source = {"dataset": "idx", "source": tmp_path / "source"}
    splits = convert_to(tmp_path / "out", **source, shard_mb=0.5).splits
    sizes = [shard.bytes for shard in splits["train"].shards]
    assert 5 <= len(sizes) <= 9 and max(sizes) < 700_000 and len(splits["test"].shards) == 1


def test_training_examples_are_needed(tmp_path):
    make_idx(tmp_path / "source", train=3)
    source = {"dataset": "idx", "source": tmp_path / "source"}
    with pytest.raises(UserError, match="'idx': there are no training examples"):
        convert_to(tmp_path / "out", **source, test_fraction=0.9999999)
    assert not (tmp_path / "out").exists()


def test_repeated_records_are_warned_of(tmp_path, capsys):
    source = tmp_path / "source"
    images, labels = make_idx(source, train=200, packed=False)["train"]
    for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
        (source / f"t10k-{kind}-ubyte").write_bytes(idx_bytes(values[:20]))
    convert_to(tmp_path / "out", dataset="idx", source=source, validation_fraction=0)
    printed = capsys.readouterr().out
    assert "warning: validation: no examples" in printed
    assert "warning: 20 different records are in both train and test" in printed
