"""Reading files, here and in a bucket alike."""

import os
import time

import hypothesis
import hypothesis.strategies as st
import pytest

from common.errors import UserError
from common.storage import reading
from common.storage.listing import found
from common.storage.reading import jumping, opened
from common.storage.store import COUNTS

_CONTENT = os.urandom(5000)
_place = st.integers(0, 5200)


@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@hypothesis.given(
    st.lists(st.tuples(st.none() | _place, st.integers(0, 900)), max_size=12),
    _place,
    st.just(0) | _place,
)
def test_whatever_is_read_in_whatever_order_is_what_the_file_has_there(disk, place, steps, start, stop):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_BUFFER_BYTES", 16)
        patch.setattr(reading, "_LEAST_BYTES", 64)
        patch.setattr(reading, "_MOST_BYTES", 512)
        (disk / "a").write_bytes(_CONTENT)
        with opened(f"{place}/a", start, stop) as file:
            at = start
            for goto, num_bytes in steps:
                at = at if goto is None else file.seek(goto)
                assert file.tell() == at and file.read(num_bytes) == _CONTENT[at : at + num_bytes]
                at = file.tell()
            assert file.seek(-10, os.SEEK_END) == 4990 and file.read() == _CONTENT[-10:]


def test_a_range_is_read_once_in_large_requests_and_ahead_of_who_reads(disk, place):
    (disk / "a").write_bytes(content := os.urandom(30 << 20))
    before = COUNTS.told()
    with opened(found(f"{place}/a"), 1 << 20, 29 << 20) as data:
        assert data.read(10) == content[1 << 20 :][:10]
        deadline = time.monotonic() + 10
        while COUNTS.told()["bytes_read"] - before["bytes_read"] < 16 << 20 and place.startswith("gs:"):
            assert time.monotonic() < deadline, "nothing is fetched ahead"
            time.sleep(0.01)
        data.seek(1 << 20)
        assert (
            b"".join(iter(lambda: data.read(min(1 << 20, (29 << 20) - data.tell())), b""))
            == content[1 << 20 : 29 << 20]
        )
    after = COUNTS.told()
    assert 28 << 20 <= after["bytes_read"] - before["bytes_read"] <= (28 << 20) + (128 << 10)
    # Google's client may ask for the bucket too, once, and again for what a busy machine did not answer.
    requests = after["requests"] - after["retries"] - (before["requests"] - before["retries"])
    assert requests in ((5, 6) if place.startswith("gs:") else (0,)), (before, after)


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"2" * 9), lambda path: path.unlink()])
def test_a_file_that_is_another_than_the_listed_one_is_not_read(disk, place, change):
    (disk / "a").write_bytes(b"1" * 9)
    file = found(f"{place}/a")
    change(disk / "a")
    with pytest.raises(UserError, match=f"^{place}/a: it has changed or gone since it was looked at; start"):
        opened(file).read()


def test_what_is_not_there_is_told(place):
    with pytest.raises(UserError, match=f"^{place}/none: no such file$"):
        opened(f"{place}/none")


def test_who_jumps_gets_what_is_asked_for_and_no_byte_more_is_read(disk, place):
    (disk / "a").write_bytes(content := os.urandom(5000))
    before = COUNTS.told()["bytes_read"]
    with jumping(found(f"{place}/a")) as data:
        for start, num_bytes in ((2100, 400), (1000, 500), (4990, 20), (5000, 1), (1400, 0)):
            assert data.seek(start) == start
            assert bytes(data.read(num_bytes)) == content[start : start + num_bytes]
        assert data.seek(-7, os.SEEK_END) == 4993 and bytes(data.read(7)) == content[-7:]
    assert COUNTS.told()["bytes_read"] - before == 917
