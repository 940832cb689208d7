import random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from components.convert.hashes import content_hashes

TEXTS = st.sampled_from([b"", b"\0", b"\0\0", b"a", b"ab", b"ba"]) | st.binary(max_size=20)
ROW = st.tuples(
    st.floats(-4, 4, width=16).map(abs),
    st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    TEXTS,
    TEXTS,
    st.binary(min_size=11, max_size=11),
)
ROWS = st.lists(ROW, min_size=1, max_size=40)


def hashes(rows):
    floats, integers, *texts, images = zip(*rows, strict=True)
    columns = {f"text{i}": pa.array(text, pa.large_binary()) for i, text in enumerate(texts)}
    columns["float"] = np.array(floats, np.float32)
    columns["z"] = np.array(integers, np.int64)
    columns["image"] = np.frombuffer(b"".join(images), np.uint8).reshape(-1, 11, 1)
    return content_hashes(len(rows), columns)


@given(rows=ROWS, others=ROWS, seed=st.integers(0, 99))
def test_hashes_are_equal_for_equal_rows(rows, others, seed):
    """Rows have equal hashes if they are equal, wherever they are, and else different ones.

    Values that have changed columns, or pixels that have changed places, make another row.
    """
    swapped = [(*row[:2], row[3], row[2], row[4]) for row in rows]
    turned = [(*row[:4], row[4][4:8] + row[4][:4] + row[4][8:]) for row in rows]
    known = [*rows, *swapped, *turned, *others]
    random.Random(seed).shuffle(known)
    for row, one in zip(rows, hashes(rows), strict=True):
        assert [other == row for other in known] == (hashes(known) == one).tolist()
