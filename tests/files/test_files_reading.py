"""Reading files, here and in a bucket alike."""

import os
import time

import hypothesis
import hypothesis.strategies as st
import pytest

from components.files import reading
from components.files.listing import File, found
from components.files.reading import jumping, opened
from components.files.store import COUNTS
from trainer.base.errors import UserError

_CONTENT = os.urandom(5000)
_place = st.integers(0, 5200)


@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@hypothesis.given(
    st.lists(st.tuples(st.none() | _place, st.integers(0, 900)), max_size=12),
    _place,
    st.just(0) | _place,
    st.integers(1, 3),
)
def test_whatever_is_read_in_whatever_order_is_what_the_file_has_there(disk, place, steps, start, stop, ahead):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_BUFFER_BYTES", 16)
        patch.setattr(reading, "_LEAST_BYTES", 64)
        patch.setattr(reading, "_MOST_BYTES", 512)
        (disk / "a").write_bytes(_CONTENT)
        with opened(f"{place}/a", start, stop, ahead=ahead) as file:
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


def test_who_jumps_gets_what_is_asked_for_and_no_byte_more_is_read_but_what_is_expected_once(disk, place):
    (disk / "a").write_bytes(content := os.urandom(5000))
    before = COUNTS.told()["bytes_read"]
    with jumping(found(f"{place}/a")) as data:
        data.expect([range(1000, 1500), range(2000, 2500)])
        data.expect([range(3000, 3500)])
        for start, num_bytes in ((2100, 400), (1000, 500), (3000, 500), (2000, 500), (4990, 20), (5000, 1), (1400, 0)):
            assert data.seek(start) == start
            assert bytes(data.read(num_bytes)) == content[start : start + num_bytes]
            assert data.tell() == min(max(start, 5000), start + num_bytes)
        assert COUNTS.told()["bytes_read"] - before == 1510
        data.seek(2400)
        assert bytes(data.read(200)) == content[2400:2600] and data.seek(-7, os.SEEK_END) == 4993
        assert bytes(data.read()) == content[-7:]
        data.expect([])
        data.seek(1000)
        assert bytes(data.read(9)) == content[1000:1009]  # which is not held any more
    assert COUNTS.told()["bytes_read"] - before == 1510 + 200 + 7 + 9


def test_of_a_file_that_is_replaced_meanwhile_what_it_is_then_is_read(disk, place, monkeypatch):
    (disk / "a").write_bytes(b"before")

    def late(path: str) -> File | None:
        monkeypatch.setattr(reading, "found", found)
        file = found(path)
        (disk / "a").write_bytes(b"now")
        return file

    monkeypatch.setattr(reading, "found", late)
    assert reading.whole(f"{place}/a") == b"now" and reading.whole(f"{place}/none") is None
