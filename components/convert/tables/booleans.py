"""Columns of true and false, whose spellings become one of each."""

import pyarrow as pa
import pyarrow.compute as pc

from common.spellings import FALSE, TRUE


def respelled(texts: pa.Array) -> pa.Array:
    """`true` and `false` for their spellings; what is none of them, and null, stays as it is."""
    plain, found = pc.ascii_lower(pc.ascii_trim_whitespace(texts)), texts
    for spellings in (TRUE, FALSE):
        is_one = pc.is_in(plain, pa.array(spellings, texts.type))
        found = pc.if_else(is_one, pa.scalar(spellings[0], texts.type), found)
    return found


def strange(respelled: pa.Array) -> list[int]:
    """Where there is a text that is neither, in order."""
    known = pa.array([TRUE[0], FALSE[0], None], respelled.type)
    return pc.indices_nonzero(pc.invert(pc.is_in(respelled, known))).to_pylist()
