import gzip
import hashlib
import io
import lzma
import os
import pathlib
import pickle
import struct
import tarfile
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.convert.source import Opening
from components.convert.sources import arrays
from components.convert.sources.arrays import ARRAYS
from components.convert.splits import Splits

DIGITS, MNIST, IDX, CIFAR10, CIFAR100 = map(ARRAYS.get, ("digits", "mnist", "idx", "cifar10", "cifar100"))


@pytest.fixture
def opened(tmp_path) -> Callable[..., arrays.ArrayExamples]:
    """Opens a source, as another process would have it."""

    def open_source(source, paths=None, **options):
        directory = tmp_path / "unpacked"
        directory.mkdir(exist_ok=True)
        examples = source.open(paths and str(paths), Opening(directory=str(directory), splits=Splits(), **options))
        return pickle.loads(pickle.dumps(examples))

    return open_source


def columns(examples, split: str) -> dict[str, np.ndarray]:
    """Returns all records of a split."""
    blocks = [block for piece in examples.pieces if piece.split == split for block in examples.blocks(piece)]
    assert all(block.columns["image"].flags.c_contiguous for block in blocks)
    return {name: np.concatenate([block.columns[name] for block in blocks]) for name in ("image", "label")}


def test_digits_are_the_original_ones(opened):
    examples = opened(DIGITS)
    (piece,) = examples.pieces
    (block,) = examples.blocks(piece)
    images, labels = block.columns["image"], block.columns["label"]
    assert images.shape == (1797, 8, 8, 1) and labels.dtype == np.int64
    assert (images.min(), images.max()) == (0, 16)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert examples.inputs[0].value_range == (0.0, 16.0) and examples.class_names == tuple("0123456789")
    origin = arrays.DIGITS.joinpath("ORIGIN.md").read_text()
    for file in DIGITS.files(None):
        assert hashlib.sha256(gzip.decompress(pathlib.Path(file.path).read_bytes())).hexdigest() in origin
    with pytest.raises(UserError, match="is built in; leave out --source x, or use --dataset idx"):
        opened(DIGITS, "x")


@pytest.mark.parametrize("dots", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_original_names_are_read(tmp_path, opened, make_idx, dots, packed):
    written = make_idx(tmp_path / "in", dots=dots, packed=packed, train=7, test=3)
    examples = opened(MNIST, tmp_path / "in")
    assert examples.native_splits == {"train", "test"} and examples.class_names == tuple("0123456789")
    for split in written:
        np.testing.assert_array_equal(columns(examples, split)["image"], written[split][0][..., np.newaxis])
        np.testing.assert_array_equal(columns(examples, split)["label"], written[split][1])
    assert len(os.listdir(tmp_path / "unpacked")) == 4 * packed  # A plain file is read where it is.


def test_idx_in_a_bucket_is_read(bucket, opened, make_idx):
    written = make_idx(bucket / "data", packed=False, train=7, test=3)
    examples = opened(MNIST, "gs://demo/data")
    np.testing.assert_array_equal(columns(examples, "test")["image"][..., 0], written["test"][0])


def test_idx_missing_files_are_all_named(tmp_path, opened, make_idx):
    def missing(source: arrays.IdxSource) -> str:
        with pytest.raises(UserError, match=f"^{tmp_path}: missing ") as error:
            opened(source, tmp_path)
        return str(error.value).partition(": missing ")[2]

    assert missing(IDX) == "train-images-idx3-ubyte, train-labels-idx1-ubyte (each may end in .gz)"
    make_idx(tmp_path, train=20)
    assert opened(IDX, tmp_path).native_splits == {"train"}
    assert missing(MNIST).startswith("t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte (")
    make_idx(tmp_path, test=3)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert missing(IDX).startswith("t10k-labels-idx1-ubyte (")


def test_idx_files_that_do_not_fit_are_named(tmp_path, opened, make_idx):
    def refused(source: arrays.IdxSource) -> str:
        with pytest.raises(UserError) as error:
            opened(source, tmp_path)
        return str(error.value)

    make_idx(tmp_path, classes=11, train=20, test=5)
    assert "train-labels-idx1-ubyte.gz: record 10 has label 10; mnist has labels 0 to 9" in refused(MNIST)
    make_idx(tmp_path, classes=300, test=15)
    assert opened(IDX, tmp_path).class_names == tuple(map(str, range(15)))  # Of any split.
    make_idx(tmp_path, size=(4, 4), test=5)
    assert "t10k-images-idx3-ubyte.gz: its shape is (5, 4, 4); train has images of (5, 4)" in refused(IDX)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes((tmp_path / "t10k-labels-idx1-ubyte.gz").read_bytes())
    expected = "train-images-idx3-ubyte.gz: its shape is (20, 5, 4); train has images of (5, 4), and there are 5 labels"
    assert expected in refused(MNIST)


GOOD = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(8)
PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08\x01" + GOOD[4:], "starts with 00000801"),
        (GOOD[:10], "and its sizes"),
        (GOOD[:-1], "cut short"),
        (GOOD + b"\0", "too long; its header promises 8 bytes"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2, 0, 2), "empty, cut short"),
        (PACKED[:-9], ""),
        (PACKED[:-5] + b"x" + PACKED[-4:], ""),
        (PACKED + b"tail", ""),
    ],
)
def test_idx_broken_file_is_named(tmp_path, opened, make_idx, data, message, pack):
    make_idx(tmp_path, train=2, packed=False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(pack(data))
    with pytest.raises(UserError, match=f"^{path}: .*{message}"):
        opened(IDX, tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_source_changed_after_opening(tmp_path, opened, make_idx, packed):
    written = make_idx(tmp_path, train=9, packed=packed)
    examples = opened(IDX, tmp_path)
    (tmp_path / f"train-images-idx3-ubyte{'.gz' * packed}").write_bytes(bytes(5))
    if packed:
        np.testing.assert_array_equal(columns(examples, "train")["image"][..., 0], written["train"][0])
    else:
        with pytest.raises(UserError, match="train-images-idx3-ubyte: it has changed or gone since"):
            columns(examples, "train")


@pytest.fixture(params=[CIFAR10, CIFAR100], ids=lambda source: source.name)
def cifar(request) -> arrays.CifarSource:
    return request.param


def contents(source: arrays.CifarSource) -> dict[str, bytes]:
    """Returns a file's content by its name: random pixels, and a number of records that differs."""
    random, written = np.random.default_rng(0), {}
    for file in (file for files in source.files_of.values() for file in files):
        count = 3 + len(written)
        labels = [random.integers(0, limit, count) for limit in source.limits]
        pixels = random.integers(0, 256, (count, 3072))
        written[file] = np.column_stack([*labels, pixels]).astype(np.uint8).tobytes()
    return written


def pack(path: pathlib.Path, files: dict[str, bytes], mode: str = "w:gz") -> pathlib.Path:
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"x/y/../z/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def unpack(directory: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    directory.mkdir(parents=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


def assert_holds(examples, source: arrays.CifarSource, files: dict[str, bytes]) -> None:
    """Compares every pixel, addressed as the format's description has it: by channel, then row, then column."""
    for split, names in source.files_of.items():
        data = b"".join(files[name] for name in names)
        records = np.frombuffer(data, np.uint8).reshape(-1, len(source.limits) + 3072)
        pixels = records[:, len(source.limits) :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(columns(examples, split)["label"], records[:, len(source.limits) - 1])
        np.testing.assert_array_equal(columns(examples, split)["image"], pixels)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_cifar_archive_is_known_by_content(tmp_path, bucket, opened, cifar, mode):
    files = contents(cifar)
    path = pack(tmp_path / "cifar", {"readme.html": b"hello", **dict(reversed(files.items()))}, mode)
    assert_holds(opened(cifar, path), cifar, files)
    assert [file.path for file in cifar.files(str(path))] == [str(path)]
    path.rename(bucket / "cifar")
    assert_holds(opened(cifar, "gs://demo/cifar"), cifar, files)


@pytest.mark.parametrize("inner", [False, True], ids=["the files", "the archive's folder"])
def test_cifar_directory_is_read(tmp_path, opened, cifar, inner):
    files = contents(cifar)
    unpack(tmp_path / "d" / cifar.folder if inner else tmp_path / "d", files)
    assert_holds(opened(cifar, tmp_path / "d"), cifar, files)
    assert [pathlib.Path(file.path).name for file in cifar.files(str(tmp_path / "d"))] == list(files)


@given(shards=st.integers(1, 40), block_bytes=st.integers(1, 20_000), archive=st.booleans())
def test_pieces_have_the_records_in_order(tmp_path_factory, shards, block_bytes, archive):
    """Any number of pieces, in blocks of any size, has each record once, in the order of the files."""
    files, root = contents(CIFAR10), tmp_path_factory.mktemp("cifar")
    path = pack(root / "archive", files, "w") if archive else unpack(root / "folder", files)
    with mock.patch.object(arrays, "_BLOCK_BYTES", block_bytes):
        (root / "unpacked").mkdir()
        examples = CIFAR10.open(str(path), Opening(directory=str(root / "unpacked"), splits=Splits(), shards=shards))
        assert_holds(examples, CIFAR10, files)
    train = [piece for piece in examples.pieces if piece.split == "train"]
    assert len(train) == min(shards, 25)


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], r"no positive number of whole records"),
        (lambda data: b"", r" 0 bytes"),
        (lambda data: b"\x64" + data[1:], r"record 0 has label 100; cifar10+ has labels 0 to (9|19)$"),
        (None, r"missing test(_batch)?\.bin; needed are the files of the binary version"),
    ],
)
def test_cifar_broken_file_is_named(tmp_path, opened, cifar, archive, damage, message):
    files = contents(cifar)
    name, data = files.popitem()
    if damage:
        files[name] = damage(data)
    path = pack(tmp_path / "a", files) if archive else unpack(tmp_path / "a", files)
    with pytest.raises(UserError, match=message) as error:
        opened(cifar, path)
    assert str(path) in str(error.value) and name in str(error.value)


def test_cifar_pickles_are_refused(tmp_path, opened):
    files = {f"data_batch_{i}": pickle.dumps(i) for i in range(1, 6)}
    for path in (unpack(tmp_path / "d", files), pack(tmp_path / "cifar-10-python.tar.gz", files)):
        with pytest.raises(UserError, match=f"^{path}: missing data_batch_1.bin.*; needed are .* the binary version"):
            opened(CIFAR10, path)


def test_cifar_fine_label_is_the_class(tmp_path, opened):
    record = bytes([19, 99]) + bytes(3072)
    examples = opened(CIFAR100, unpack(tmp_path / "a", {"train.bin": record, "test.bin": record}))
    assert examples.class_names[columns(examples, "train")["label"][0]] == "worm"
    assert examples.class_names == tuple(sorted(examples.class_names)) and len(set(examples.class_names)) == 100


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_cifar_damaged_archive_is_named(tmp_path, opened, cifar, mode):
    path = tmp_path / "a"
    packed = pack(path, contents(cifar), mode).read_bytes()
    middle = len(packed) // 2
    damaged = [packed[:middle], b"\x1f\x8b" + bytes(range(256)) * 9, b"", b"no archive at all\n" * 99]
    if mode != "w":  # A plain archive has no checksum over its contents.
        damaged += [packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1 :], packed[:-4]]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(UserError, match=str(path)):
            opened(cifar, path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
def test_full_disk_is_no_fault_of_the_source(tmp_path, opened, make_idx):
    make_idx(tmp_path / "in", train=900)
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked" / "train-images-idx3-ubyte.gz").symlink_to("/dev/full")
    with pytest.raises(UserError, match=f"^cannot write {tmp_path}/unpacked/.*No space left"):
        opened(IDX, tmp_path / "in")
