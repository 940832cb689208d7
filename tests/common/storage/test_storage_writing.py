"""Writing files, here and in a bucket alike: whole or not at all."""

import os

import numpy as np
import pytest

from common.errors import UserError
from common.storage.files import crc32c
from common.storage.listing import listed
from common.storage.writing import copy_folder, created
from tests.cloud.objects import Objects

_LARGE = os.urandom(12 << 20)


@pytest.fixture(params=[b"small", _LARGE], ids=["small", "large"])
def content(request) -> bytes:
    """Of a file that is sent in one request, and of one that takes a resumable upload."""
    return request.param


def test_what_was_written_in_pieces_is_there_whole_with_its_checksum(disk, place, content):
    with created(f"{place}/sub/a") as file:
        for start in range(0, len(content), 300_000):
            file.write(np.frombuffer(content[start : start + 300_000], np.uint8))
            assert not listed(f"{place}/sub/a")
    assert (disk / "sub" / "a").read_bytes() == content
    assert (file.made.path, file.made.num_bytes) == (f"{place}/sub/a", len(content))
    assert file.made.crc32c == crc32c(content)
    assert [there.path for there in listed(place)] == [f"{place}/sub/a"]


def test_a_file_whose_writer_fails_leaves_what_was_there(disk, place, content):
    (disk / "a").write_bytes(b"before")
    with pytest.raises(KeyError), created(f"{place}/a") as file:
        file.write(content)
        raise KeyError
    assert [there.path for there in listed(place)] == [f"{place}/a"] and (disk / "a").read_bytes() == b"before"


def test_a_new_file_is_made_by_one_only_unless_all_write_the_same(disk, place):
    for _ in range(2):
        with created(f"{place}/a", new=True) as file:
            file.write(b"mine")
    with pytest.raises(FileExistsError), created(f"{place}/a", new=True) as file:
        file.write(b"other")
    assert (disk / "a").read_bytes() == b"mine" and len(listed(place)) == 1


def test_an_upload_that_does_not_arrive_as_it_was_sent_is_refused_and_not_left(bucket, content, monkeypatch):
    put = Objects.put
    monkeypatch.setattr(
        Objects, "put", lambda self, bucket, name, data, query: put(self, bucket, name, b"?" + data[1:], query)
    )
    with (
        pytest.raises(UserError, match=r"gs://demo/a cannot be used: 400.* CRC32C"),
        created("gs://demo/a") as file,
    ):
        file.write(content)
    assert not listed("gs://demo")


def test_folder_is_copied_to_another_bucket(bucket, content):
    (bucket / "a" / "b").mkdir(parents=True)
    (bucket / "a" / "b" / "c").write_bytes(content)
    (bucket.parent / "other").mkdir()
    copy_folder("gs://demo/a", "gs://other/d/e")
    assert (bucket.parent / "other" / "d" / "e" / "b" / "c").read_bytes() == content
