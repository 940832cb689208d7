import gzip
import struct
from unittest import mock

import numpy as np
import pytest
from divided import whole
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.storage.files import stat_file
from components.convert.sources import idx
from components.convert.sources.idx import Array
from components.convert.sources.registry import find_reader


@given(data=st.data(), shape=st.lists(st.integers(1, 9), min_size=1, max_size=3), packed=st.booleans())
def test_any_rows_are_read_as_they_were_written(tmp_path_factory, idx_bytes, data, shape, packed):
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    path = tmp_path_factory.mktemp("idx") / "file.gz"  # compression is known by the content
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    stop = data.draw(st.integers(1, shape[0]))
    start = data.draw(st.integers(0, stop - 1))
    found = Array.of(stat_file(str(path)), len(shape))
    with mock.patch.object(idx, "_BLOCK_BYTES", data.draw(st.integers(1, 999))):
        np.testing.assert_array_equal(np.concatenate(list(found.rows(start, stop))), array[start:stop])


@pytest.mark.parametrize("dots", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_finds_the_original_names_with_dots_and_without_gz(tmp_path, make_idx, dots, packed):
    made = make_idx(tmp_path, dots=dots, packed=packed, train=7, test=3)
    splits = whole(find_reader("mnist"), str(tmp_path)).splits
    for split in made:
        np.testing.assert_array_equal(splits[split]["image"], made[split][0][..., np.newaxis])
        np.testing.assert_array_equal(splits[split]["label"], made[split][1])


def test_names_every_missing_file_and_only_an_idx_set_may_lack_a_test_split(tmp_path, make_idx):
    def missing(dataset: str) -> str:
        with pytest.raises(UserError) as error:
            whole(find_reader(dataset), str(tmp_path))
        return str(error.value).partition(": missing ")[2]

    assert missing("idx") == "train-images-idx3-ubyte, train-labels-idx1-ubyte (each may end in .gz)"
    make_idx(tmp_path, train=20)
    assert list(whole(find_reader("idx"), str(tmp_path)).splits) == ["train"]
    assert missing("mnist").startswith("t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (")
    make_idx(tmp_path, test=3)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert missing("idx").startswith("t10k-labels-idx1-ubyte (")


GOOD = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(8)
PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08\x01" + GOOD[4:], "starts with 00000801"),
        (GOOD[:10], "and its sizes"),
        (GOOD[:-1], "cut short"),
        (GOOD + b"\0", "too long; its header promises 8 bytes"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2, 0, 2), "empty; its dimensions are 2 x 0 x 2"),
        (PACKED[:-9], ""),
        (PACKED[:-5] + b"x" + PACKED[-4:], ""),
        (PACKED + b"tail", ""),
    ],
)
def test_a_broken_file_is_named(tmp_path, data, message, packed):
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UserError, match=f"^{path}: .*{message}"):
        found = Array.of(stat_file(str(path)), 3)
        list(found.rows(0, found.shape[0]))
