import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.convert.writing.column_store import Store

dtypes = st.sampled_from(["float32", "int64", "uint8", "bool"])


@given(dtype=dtypes, sizes=st.lists(st.integers(0, 40), max_size=6), budget=st.sampled_from([0, 100, 1000, 10**6]))
def test_a_column_is_what_was_appended_whatever_fits_into_memory(tmp_path_factory, dtype, sizes, budget):
    directory = tmp_path_factory.mktemp("store")
    store = Store(budget_bytes=2 * budget, directory=directory)
    random = np.random.default_rng(0)
    blocks = [random.integers(0, 200, size).astype(dtype) for size in sizes]
    column = store.column(dtype)
    for block in blocks:
        column.append(block)
    found = column.finish()
    expected = np.concatenate([np.empty(0, dtype), *blocks])
    assert found.dtype == expected.dtype and type(found) is np.ndarray
    np.testing.assert_array_equal(found, expected)
    assert not list(directory.iterdir())  # a file without a name is gone with the process
    assert store.take(budget) == (not expected.nbytes or expected.nbytes > budget)


def test_what_does_not_fit_is_not_held_in_memory(tmp_path):
    store = Store(budget_bytes=10**6, directory=tmp_path)
    block = np.arange(2**17)
    tracemalloc.start()
    try:
        column = store.column(np.int64)
        for _ in range(40):
            column.append(block)
        found = column.finish()
        whole = store.empty((4000, 5000), "images.gz")
        whole[:] = 7
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert len(found) == 40 * 2**17 and (found[-(2**17) :] == block).all() and whole[3999, 4999] == 7
