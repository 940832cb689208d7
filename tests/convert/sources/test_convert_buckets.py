"""A source in a bucket is what it is in a directory, and is read as often as it has to be."""

import gzip
import pathlib
import shutil

import numpy as np
import pytest
from opened import read_all
from PIL import Image

from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.source import Opening
from components.convert.sources.arrays import ARRAYS
from components.convert.sources.registry import find_source
from components.convert.splits import Splits

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
            for name in (name for files in ARRAYS["cifar10"].files_of.values() for name in files):
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
        (
            "idx",
            1,
        ),  # Into a copy on this machine, which is mapped into memory, as a plain file of this machine is where it lies.
        ("idx packed", 1),
        ("cifar10", 1),
        ("images", 1.04),  # And of each the head before.
        ("tfrecord", 1.02),
    ],
)
def test_bucket_is_read_once(bucket, tmp_path, large, bytes_read, dataset, passes):
    flags, root = large(dataset)
    shutil.copytree(root, bucket / "data")
    size, made = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()), []
    for source, output in ((str(root), "here"), ("gs://demo/data", "there")):
        made.append(convert(Options(**flags, source=source, output=str(tmp_path / output), shards=4, processes=1)))
        before = bytes_read()
        read_all(find_source(**flags), source)
        is_mapped = output == "here" and dataset in ("idx", "cifar10")
        assert (0 if is_mapped else 0.99 * passes) < (bytes_read() - before) / size < 1.05 * passes
    assert made[0] == made[1]


@pytest.mark.parametrize("dataset", ["images", "tfrecord"])
def test_object_that_changes_is_named(bucket, tmp_path, large, dataset):
    flags, root = large(dataset)
    shutil.copytree(root, bucket / "data")
    examples = find_source(**flags).open("gs://demo/data", Opening(directory=str(tmp_path), splits=Splits()))
    for path in (path for path in (bucket / "data").rglob("*") if path.is_file()):
        path.write_bytes(path.read_bytes())
    with pytest.raises(UserError, match=r"^gs://demo/data/[\w./-]+: it has changed or gone since it was looked at"):
        list(examples.blocks(examples.pieces[0]))
