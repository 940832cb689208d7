import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainer.data.reader import ranges
from trainer.data.reader.ranges import COUNTS

WHOLE = bytes(range(250))


@pytest.fixture(autouse=True)
def file(bucket):
    (bucket / "file").write_bytes(WHOLE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, 300), stop=st.none() | st.integers(0, 300))
@pytest.mark.parametrize("place", ["here", "in a bucket"])
def test_a_range_is_read_and_counted_exactly_wherever_the_file_is(bucket, place, start, stop):
    before = COUNTS.told()
    assert ranges.read_range(bucket / "file" if place == "here" else "gs://demo/file", start, stop) == WHOLE[start:stop]
    after = COUNTS.told()
    assert after["data_bytes_read"] - before["data_bytes_read"] == len(WHOLE[start:stop])
    asked = place != "here" and (stop is None or stop > start)
    assert after["data_requests"] - before["data_requests"] == asked


@pytest.mark.parametrize(("stop", "requests"), [(250, 4), (200, 3), (1000, 4)])
def test_a_file_that_is_read_on_is_fetched_in_pieces_to_where_it_is_to_end_and_no_piece_twice(
    bucket, monkeypatch, stop, requests
):
    monkeypatch.setattr(ranges, "_PIECE_BYTES", 64)
    before = COUNTS.told()
    with ranges.opened("gs://demo/file", 10, stop) as file:
        assert b"".join(iter(lambda: file.read(50), b"")) == WHOLE[10:stop]
    after = COUNTS.told()
    assert after["data_bytes_read"] - before["data_bytes_read"] == len(WHOLE[10:stop])
    assert after["data_requests"] - before["data_requests"] == requests


@pytest.mark.parametrize("path", ["gs://demo/none", "gs://nobody/file", "/none/file"])
def test_a_file_that_is_not_there_is_told_as_such(bucket, path):
    with pytest.raises(FileNotFoundError):
        ranges.read_range(path, 0, 10)
