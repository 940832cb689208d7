import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing.checksums import combined


@given(st.binary(max_size=99), st.binary(max_size=3000))
def test_the_checksum_of_two_pieces_follows_from_theirs(before, behind):
    crc32c = google_crc32c.value
    assert combined(crc32c(before), crc32c(behind), len(behind)) == crc32c(before + behind)
