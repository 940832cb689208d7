"""A source in a bucket is what it is in a directory, and is read as often as it has to be."""

import pathlib
import shutil

import kinds
import pytest
from dataset_files import convert_to, read_folder
from opened import read_all

from components.convert.source import Opening
from components.convert.sources.registry import find_source
from components.convert.splits import Splits
from tests.errors import user_error

pytestmark = pytest.mark.long


@pytest.fixture(params=["idx", "images"])
def flags(request, tmp_path, bucket):
    """Flags but `source` of files that lie here and in a bucket."""
    flags = kinds.make(request.param, tmp_path)
    shutil.copytree(flags.pop("source"), bucket / "data")
    return flags


def test_bucket_is_read_once(tmp_path, bucket, flags, bytes_read):
    here = convert_to(tmp_path / "here", **flags, source=tmp_path / "source")
    assert convert_to(tmp_path / "there", **flags, source="gs://demo/data") == here
    size = sum(map(len, read_folder(bucket / "data").values()))
    before = bytes_read()
    read_all(find_source(**flags, paths="gs://demo/data"), "gs://demo/data")
    # The copy of an IDX file is read too, and of small images all is read to see their heads.
    assert 0.99 < (bytes_read() - before) / size / 2 < 1.05


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"!"), pathlib.Path.unlink])
@pytest.mark.parametrize(
    ("flags", "place"),
    [("idx", "{}/source"), ("images", "gs://demo/data")],
    indirect=["flags"],
)
def test_changed_or_deleted_file_is_named(bucket, tmp_path, flags, change, place):
    place = place.format(tmp_path)
    opening = Opening(directory=str(tmp_path), splits=Splits())
    examples = find_source(**flags, paths=place).open(place, opening)
    for path in [*bucket.glob("data/**/*.*"), *tmp_path.glob("source/train*")]:
        change(path)
    with user_error(f"^{place}/.*: it has changed or gone since"):
        list(examples.blocks(examples.pieces[0]))
