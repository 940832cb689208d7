from __future__ import annotations

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.sources import idx
from components.convert.writing.column_store import Store
from trainer.base.errors import UserError

PREFIXES = {"train": "train-", "test": "t10k-"}


@given(shape=st.lists(st.integers(1, 9), min_size=1, max_size=3), packed=st.booleans(), seed=st.integers(0, 99))
def test_reads_what_was_written(tmp_path_factory, idx_bytes, shape, packed, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    np.testing.assert_array_equal(idx.read(path, dimensions=len(shape)), array)


@pytest.mark.parametrize("dots", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_finds_the_original_names_with_dots_and_without_gz(tmp_path, make_idx, dots, packed):
    made = make_idx(tmp_path, dots=dots, packed=packed, train=7, test=3)
    pairs = idx.find(tmp_path, PREFIXES, required={"train", "test"})
    for split in made:
        images, labels = idx.read_pair(*pairs[split])
        np.testing.assert_array_equal(images, made[split][0][..., np.newaxis])
        np.testing.assert_array_equal(labels, made[split][1])


def test_compression_is_known_by_content_not_by_name(tmp_path, idx_bytes):
    path = tmp_path / "labels.gz"
    path.write_bytes(idx_bytes(np.arange(5)))
    assert idx.read(path, dimensions=1).tolist() == [0, 1, 2, 3, 4]


def test_names_every_missing_file(tmp_path, make_idx):
    with pytest.raises(UserError, match="missing train-images-idx3-ubyte, train-labels-idx1-ubyte") as error:
        idx.find(tmp_path, PREFIXES, required={"train"})
    assert "t10k" not in str(error.value)
    make_idx(tmp_path, train=3, test=3)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="missing t10k-labels-idx1-ubyte "):
        idx.find(tmp_path, PREFIXES, required={"train"})


GOOD = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(8)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08\x01" + GOOD[4:], "starts with 00000801"),
        (b"\x00\x00\x0d\x03" + GOOD[4:], "starts with 00000d03"),
        (b"\x89PNG" + GOOD[4:], "starts with 89504e47"),
        (GOOD[:10], "cut short in its header"),
        (GOOD[:-1], "cut short"),
        (GOOD + b"\0", "more data than the 8 bytes"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2, 0, 2), "empty; its dimensions are 2 x 0 x 2"),
        (struct.pack(">4B3I", 0, 0, 8, 3, *[2**32 - 1] * 3) + bytes(8), "cut short"),
    ],
)
def test_a_broken_file_is_named(tmp_path, data, message, packed):
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UserError, match=message) as error:
        idx.read(path, dimensions=3)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("damage", [lambda z: z[:-9], lambda z: z[:-5] + b"x" + z[-4:], lambda z: z + b"tail"])
def test_a_damaged_gzip_stream_is_named(tmp_path, damage):
    path = tmp_path / "images.gz"
    path.write_bytes(damage(gzip.compress(GOOD)))
    with pytest.raises(UserError, match=str(path)):
        idx.read(path, dimensions=3)


@pytest.mark.parametrize("promised", [(4, 4, 4), (2**20, 2**10, 2**10)], ids=["little", "too much"])
def test_a_gzip_bomb_is_refused_without_unpacking_it(tmp_path, promised):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, *promised) + bytes(30_000_000), 9))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"more data than|cut short"):
            idx.read(path, dimensions=3)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def _sparse(path, size: int) -> None:
    with open(path, "r+b") as file:
        try:
            file.truncate(size)
        except OSError:
            pytest.skip("this file system has no sparse files of that size")


def test_a_file_larger_than_memory_is_not_read_before_it_is_used(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 2**23, 2**10, 2**10) + b"\x07")
    _sparse(path, 16 + 2**43)
    pixels = idx.read(path, dimensions=3, store=Store(budget_bytes=10**6, directory=tmp_path))
    assert pixels.shape == (2**23, 2**10, 2**10) and pixels[0, 0, 0] == 7 and not pixels[np.array([5, 2**22])].any()


def test_what_unpacks_to_more_than_the_disk_holds_is_refused(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 2**23, 2**10, 2**10)))
    _sparse(path, 2**34)
    with pytest.raises(UserError, match=rf"{path}: unpacks to {2**43:,} bytes, .* bytes free"):
        idx.read(path, dimensions=3, store=Store(budget_bytes=10**6, directory=tmp_path))


@pytest.mark.parametrize("packed", [False, True])
def test_memory_does_not_change_what_is_read(tmp_path, idx_bytes, packed):
    array = np.random.default_rng(0).integers(0, 256, (50, 7, 9), np.uint8)
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    np.testing.assert_array_equal(idx.read(path, dimensions=3, store=Store(budget_bytes=9, directory=tmp_path)), array)
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


def test_as_many_labels_as_images(tmp_path, idx_bytes):
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(GOOD)
    labels.write_bytes(idx_bytes(np.arange(3)))
    with pytest.raises(UserError, match=f"{labels}: 3 labels for the 2 images of images"):
        idx.read_pair(images, labels)
