"""Joining files, here and in a bucket alike."""

import os

import pytest

from common.errors import UserError
from common.storage import writing
from common.storage.files import crc32c
from common.storage.listing import File, found, listed
from common.storage.writing import created, joined


def _made(place: str, contents: list[bytes]) -> list[File]:
    parts = []
    for number, content in enumerate(contents):
        with created(f"{place}/parts/{number}") as file:
            file.write(content)
        parts.append(file.made)
    return parts


@pytest.mark.parametrize("count", [0, 1, 2, 4, 30])
def test_parts_in_a_row_are_one_file_and_nothing_else_is_left(disk, place, count, monkeypatch):
    monkeypatch.setattr(writing, "_COMPOSED", 4)
    contents = [os.urandom(number * 100 % 700) for number in range(1, count + 1)]
    parts = _made(place, contents)
    made = joined(parts, f"{place}/sub/whole")
    assert (disk / "sub" / "whole").read_bytes() == b"".join(contents)
    assert (made.num_bytes, made.crc32c) == (sum(map(len, contents)), crc32c(b"".join(contents)))
    assert len(listed(place)) == count + 1 and found(made.path).crc32c in ("", made.crc32c)


def test_joining_again_replaces_what_was_joined(disk, place):
    parts = _made(place, [b"one"])
    (disk / "whole").write_bytes(b"before")
    for _ in range(2):
        joined(parts, f"{place}/whole")
    assert (disk / "whole").read_bytes() == b"one" and len(listed(place)) == 2


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"twoo"), lambda path: path.unlink()])
def test_parts_that_have_changed_are_not_joined(disk, place, change):
    parts = _made(place, [b"one", b"two"])
    change(disk / "parts" / "1")
    with pytest.raises(UserError, match=r"has changed or gone|cannot be used: 404"):
        joined(parts, f"{place}/whole")
    assert not listed(f"{place}/whole") and not list(disk.glob("*.tmp"))
