"""A source in a bucket is what it is in a directory, and is read as often as it has to be."""

import pathlib
import shutil

import numpy as np
import pytest
from dataset_files import convert_to, encode_image, make_idx, write_files, write_records
from opened import read_all

from common.errors import UserError
from components.convert.source import Opening
from components.convert.sources.registry import find_source
from components.convert.splits import Splits

RANDOM = np.random.default_rng(0)
SCHEMA = "{name: t, origin: t, image: image, label: label, classes: 9, shape: [60, 50, 3]}"


@pytest.fixture(params=["idx", "images", "tfrecord"])
def flags(request, tmp_path, bucket) -> dict[str, str]:
    """Flags but `source` of some megabytes, which lie here and in a bucket."""
    root = tmp_path / "source"
    if request.param == "idx":
        make_idx(root, size=(28, 28), train=2000, test=500)
    elif request.param == "images":
        names = [f"{label}/{i}.png" for label in "ab" for i in range(12)]
        pixels = RANDOM.integers(0, 256, (24, 180, 160, 3), np.uint8)
        write_files(root, dict(zip(names, map(encode_image, pixels), strict=True)))
    else:
        for name in ("train-0.tfrecord", "more/train-1.tfrecord", "test.tfrecord.gz"):
            records = [{"image": RANDOM.bytes(9000), "label": k % 9} for k in range(150)]
            write_records(root / name, records)
    shutil.copytree(root, bucket / "data")
    write_files(tmp_path, {"schema": SCHEMA})
    schema = {"schema": str(tmp_path / "schema")} if request.param == "tfrecord" else {}
    return {"dataset": request.param, **schema}


@pytest.mark.cluster
def test_bucket_is_read_once(tmp_path, flags, bytes_read):
    files = [path for path in (tmp_path / "source").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    manifests = []
    for source in (str(tmp_path / "source"), "gs://demo/data"):
        out = tmp_path / f"out{len(manifests)}"
        manifests.append(convert_to(out, **flags, source=source, shards=4, processes=1))
        before = bytes_read()
        read_all(find_source(**flags), source)
        # Of images the head is read before.
        assert 0.99 < (bytes_read() - before) / size < 1.09
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("flags", ["images", "tfrecord"], indirect=True)
def test_changed_or_deleted_file_is_named(bucket, tmp_path, flags):
    opening = Opening(directory=str(tmp_path), splits=Splits())
    here, there = tmp_path / "source", bucket / "data"
    for source, folder in ((str(here), here), ("gs://demo/data", there)):
        examples = find_source(**flags).open(source, opening)
        paths = [path for path in folder.rglob("*") if path.is_file()]
        for change in (lambda path: path.write_bytes(path.read_bytes()), pathlib.Path.unlink):
            for path in paths:
                change(path)
            with pytest.raises(UserError, match=f"^{source}/.*: it has changed or gone since"):
                list(examples.blocks(examples.pieces[0]))
