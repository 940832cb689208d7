import functools

import pytest
from dataset_files import convert_to, idx_bytes, make_idx, read_split, write_files

from common.manifest import FILE
from components.convert.output import PAGE, PLAN
from tests.errors import user_error


@pytest.fixture
def convert_idx(tmp_path):
    """Converts the IDX files in the folder `source`."""
    return functools.partial(
        convert_to, tmp_path / "out", dataset="idx", source=tmp_path / "source"
    )


@pytest.mark.parametrize(("shards", "expected"), [(40, [40, 0, 4]), (1, [1, 0, 1])])
def test_dataset_holds_its_source(tmp_path, convert_idx, shards, expected):
    out = tmp_path / "out"
    # Of several blocks.
    written = make_idx(tmp_path / "source", size=(70, 100), train=1000, test=100)
    manifest = convert_idx(shards=shards, validation_fraction=0)
    assert str(tmp_path) not in manifest.dump()
    assert [len(split.shards) for split in manifest.splits.values()] == expected
    files = {name for split in manifest.splits.values() for name in split.checksums}
    assert {path.name for path in out.iterdir()} == {FILE, PAGE, PLAN, *files}
    for native, (images, labels) in written.items():
        split = manifest.splits[native]
        records = [(record["image"], record["label"]) for record in read_split(out, native)]
        assert sorted(records) == sorted(zip(map(bytes, images), labels, strict=True))
        assert split.examples == len(labels) == sum(shard.examples for shard in split.shards)


def test_training_examples_are_needed(tmp_path, convert_idx):
    make_idx(tmp_path / "source", train=3)
    with user_error("'idx': there are no training examples"):
        convert_idx(test_fraction=0.9999999)
    assert not (tmp_path / "out").exists()


def test_repeated_records_are_warned_of(tmp_path, convert_idx, capsys):
    images, labels = make_idx(tmp_path / "source", train=200)["train"]
    test = {"images-idx3": images[:20], "labels-idx1": labels[:20]}
    files = {f"t10k-{kind}-ubyte": idx_bytes(array) for kind, array in test.items()}
    write_files(tmp_path / "source", files)
    convert_idx(validation_fraction=0)
    printed = capsys.readouterr().out
    assert "warning: validation: no examples" in printed
    assert "warning: 20 different records are in both train and test" in printed
