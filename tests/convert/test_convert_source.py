from hypothesis import given
from hypothesis import strategies as st

from components.convert.source import SHARD_BYTES, Opening
from components.convert.splits import Splits

BYTES = st.dictionaries(st.sampled_from(["test", "validation"]), st.integers(0, 10**9))


@given(st.integers(0, 10**9), BYTES, st.none() | st.integers(1, 99), st.integers(0, 500))
def test_pieces_cover_each_record_once(train, others, shards, count):
    """Whatever the sizes, also where a split is empty, the pieces of a split are its records."""
    num_bytes = {"train": train, **others}
    num_records = dict.fromkeys(num_bytes, count)
    opening = Opening(directory="d", splits=Splits(), shards=shards)
    pieces = opening.even_pieces(num_records, num_bytes)
    for split in num_bytes:
        parts = [piece.part for piece in pieces if piece.split == split]
        assert [i for part in parts for i in range(*part)] == list(range(count))
    for piece in pieces if not shards else ():
        record_bytes = num_bytes[piece.split] / count
        assert piece.num_bytes <= SHARD_BYTES + record_bytes
