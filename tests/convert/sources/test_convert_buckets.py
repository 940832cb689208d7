"""A source in a bucket is what it is in a directory, and is read as often as it has to be."""

import gzip
import pathlib
import shutil

import numpy as np
import pytest
from divided import whole
from PIL import Image

from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.cifar import CIFAR10
from components.convert.sources.registry import find_reader

RANDOM = np.random.default_rng(0)
SCHEMA = "name: t\norigin: t\nimage: image\nlabel: label\nclasses: 9\nshape: [60, 50, 3]\n"


@pytest.fixture
def large(tmp_path, make_idx, write_records):
    """Makes a source of some megabytes, here; returns its flags but `source`, and its folder."""

    def make(dataset: str) -> tuple[dict[str, str], pathlib.Path]:
        root, flags = tmp_path / "source", {"dataset": dataset.split()[0]}
        if dataset.startswith("idx"):
            make_idx(root, size=(28, 28), packed="packed" in dataset, train=2000, test=500)
        elif dataset == "cifar10":
            root.mkdir()
            for name in (name for files in CIFAR10.files_of.values() for name in files):
                records = RANDOM.integers(0, 256, (100, 3073), np.uint8)
                records[:, 0] %= 10
                (root / name).write_bytes(records.tobytes())
        elif dataset == "images":
            for path in (root / name / f"{i}.png" for name in ("lily", "rose") for i in range(12)):
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(RANDOM.integers(0, 256, (180, 160, 3), np.uint8)).save(path)
        else:
            for i, name in enumerate(("train-0.tfrecord", "more/train-1.tfrecord", "test.tfrecord")):
                path = write_records(
                    root / name, [{"image": [RANDOM.bytes(9000)], "label": [k % 9]} for k in range(150)]
                )
                path.write_bytes(gzip.compress(path.read_bytes()) if i == 1 else path.read_bytes())
            (tmp_path / "schema.yaml").write_text(SCHEMA)
            flags["schema"] = str(tmp_path / "schema.yaml")
        return flags, root

    return make


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("dataset", "passes"),
    [
        ("idx", 1),
        ("idx packed", 1),
        ("cifar10", 1),
        ("images", 1.04),  # and of each the head before
        ("tfrecord", 1.33),  # of one that is packed the records are counted before
    ],
)
def test_the_dataset_is_the_same_from_a_bucket_and_each_byte_is_read_once_in_a_pass(
    bucket, tmp_path, large, bytes_read, dataset, passes
):
    flags, root = large(dataset)
    shutil.copytree(root, bucket / "data")
    size, made = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()), []
    for source, name in ((str(root), "here"), ("gs://demo/data", "there")):
        made.append(convert(Options(**flags, source=source, output=str(tmp_path / name), shards=4, processes=1)))
        before = bytes_read()
        whole(find_reader(**flags), source)
        assert 0.99 * passes < (bytes_read() - before) / size < 1.05 * passes
    assert made[0] == made[1]


@pytest.mark.parametrize("dataset", ["idx", "idx packed", "cifar10", "images", "tfrecord"])
def test_an_object_that_is_written_again_after_it_was_listed_is_named(bucket, large, dataset):
    flags, root = large(dataset)
    shutil.copytree(root, bucket / "data")
    reader = find_reader(**flags)
    cut = reader.cut("gs://demo/data", pieces=2, piece_bytes=1 << 26)
    for path in (path for path in (bucket / "data").rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes())
    source = reader.open(cut)
    with pytest.raises(UserError, match=r"^gs://demo/data/[\w./-]+: it has changed or gone since it was looked at"):
        source.look(cut.pieces[1], None) if source.looks else list(source.blocks(cut.pieces[1]))
