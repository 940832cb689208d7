"""A source in a bucket is what it is in a directory, and is read as often as it has to be."""

import gzip
import pathlib
import shutil

import numpy as np
import pytest
from dataset_files import make_idx, write_records
from opened import read_all
from PIL import Image

from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.source import Opening
from components.convert.sources.registry import find_source
from components.convert.splits import Splits

RANDOM = np.random.default_rng(0)
SCHEMA = "name: t\norigin: t\nimage: image\nlabel: label\nclasses: 9\nshape: [60, 50, 3]\n"


@pytest.fixture
def large(tmp_path, bucket):
    """Makes a source of some megabytes, here and as `gs://demo/data`; returns its flags except `source`, and its folder."""

    def make(dataset: str) -> tuple[dict[str, str], pathlib.Path]:
        root, flags = tmp_path / "source", {"dataset": dataset}
        if dataset == "idx":
            make_idx(root, size=(28, 28), train=2000, test=500)
        elif dataset == "images":
            for path in (root / name / f"{i}.png" for name in ("lily", "rose") for i in range(12)):
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(RANDOM.integers(0, 256, (180, 160, 3), np.uint8)).save(path)
        else:
            for name in ("train-0.tfrecord", "more/train-1.tfrecord", "test.tfrecord"):
                records = [{"image": [RANDOM.bytes(9000)], "label": [k % 9]} for k in range(150)]
                path = write_records(root / name, records)
            path.write_bytes(gzip.compress(path.read_bytes()))
            (tmp_path / "schema.yaml").write_text(SCHEMA)
            flags["schema"] = str(tmp_path / "schema.yaml")
        shutil.copytree(root, bucket / "data")
        return flags, root

    return make


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("dataset", "passes"),
    [
        ("idx", 1),
        ("images", 1.04),  # And of each the head before.
        ("tfrecord", 1.02),
    ],
)
def test_bucket_is_read_once(tmp_path, large, bytes_read, dataset, passes):
    flags, root = large(dataset)
    size, manifests = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()), []
    for source, output in ((str(root), "here"), ("gs://demo/data", "there")):
        options = Options(
            **flags, source=source, output=str(tmp_path / output), shards=4, processes=1
        )
        manifests.append(convert(options))
        before = bytes_read()
        read_all(find_source(**flags), source)
        assert 0.99 * passes < (bytes_read() - before) / size < 1.05 * passes
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("dataset", ["images", "tfrecord"])
def test_changed_or_deleted_file_is_named(bucket, tmp_path, large, dataset):
    flags, root = large(dataset)
    for source, folder in ((str(root), root), ("gs://demo/data", bucket / "data")):
        examples = find_source(**flags).open(
            source, Opening(directory=str(tmp_path), splits=Splits())
        )
        paths = [path for path in folder.rglob("*") if path.is_file()]
        for change in (lambda path: path.write_bytes(path.read_bytes()), pathlib.Path.unlink):
            for path in paths:
                change(path)
            with pytest.raises(
                UserError,
                match=rf"^{source}/[\w./-]+: it has changed or gone since it was looked at",
            ):
                list(examples.blocks(examples.pieces[0]))
