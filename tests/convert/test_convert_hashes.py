import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from components.convert.hashes import content_hashes

ROWS = st.lists(
    st.tuples(
        st.floats(-4, 4, width=16),
        st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([b"", b"\0", b"\0\0", b"a", b"ab", b"ba"]) | st.binary(max_size=20),
        st.binary(min_size=7, max_size=7),
    ),
    min_size=1,
    max_size=40,
)


def columns(rows):
    floats, integers, strings, images = zip(*rows, strict=True)
    return {
        "float": np.array(floats, np.float32) + 0.0,  # -0.0 is another number of the same value
        "z": np.array(integers, np.int64),
        "text": pa.array(strings, pa.large_binary()),
        "image": np.frombuffer(b"".join(images), np.uint8).reshape(-1, 7, 1),
    }


def hashes(columns):
    return content_hashes(len(next(iter(columns.values()))), columns)


@given(rows=ROWS, others=ROWS, seed=st.integers(0, 99))
def test_hashes_are_equal_for_equal_rows(rows, others, seed):
    """Rows have equal hashes if they are equal, wherever they are, and else different ones."""
    both = rows + others
    order = np.random.default_rng(seed).permutation(len(both))
    shuffled = hashes(columns([both[i] for i in order]))
    for row, one in zip(rows, hashes(columns(rows)), strict=True):
        assert [both[i] == row for i in order] == (shuffled == one).tolist()


def test_hashes_depend_on_place():
    values = np.arange(200, dtype=np.float32)
    moved = [
        {"a": values, "b": values + 1},
        {"a": values + 1, "b": values},
        {"a": values, "b": values},
    ]
    assert len(np.unique([hashes(columns) for columns in moved])) == 600
    pixels = np.zeros((8, 2, 2, 2), np.uint8)
    pixels.reshape(8, 8)[np.diag_indices(8)] = 255
    assert len(np.unique(hashes({"image": pixels}))) == 8
