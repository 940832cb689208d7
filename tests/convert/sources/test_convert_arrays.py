import gzip
import hashlib
import io
import itertools
import lzma
import os
import pathlib
import pickle
import struct
import tarfile

import numpy as np
import pytest
from dataset_files import make_idx
from opened import read_all

from common.errors import UserError
from components.convert.source import Opening
from components.convert.sources import arrays
from components.convert.sources.arrays import ARRAYS
from components.convert.splits import Splits

DIGITS, MNIST, IDX, CIFAR10, CIFAR100 = map(
    ARRAYS.get, ("digits", "mnist", "idx", "cifar10", "cifar100")
)


def test_digits_are_original():
    opened = read_all(DIGITS)
    assert opened.splits["train"]["image"].shape == (1797, 8, 8, 1)
    assert np.bincount(opened.splits["train"]["label"]).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]
    assert opened.examples.inputs[0].value_range == (0.0, 16.0)
    origin = arrays.DIGITS.joinpath("ORIGIN.md").read_text()
    for file in DIGITS.files(None):
        assert (
            hashlib.sha256(gzip.decompress(pathlib.Path(file.path).read_bytes())).hexdigest()
            in origin
        )


@pytest.mark.parametrize("dots", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_original_names(bucket, dots, packed):
    written = make_idx(bucket / "data", packed=packed, train=7, test=3)
    if dots:
        for path in [*(bucket / "data").iterdir()]:
            path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    for place in (str(bucket / "data"), "gs://demo/data"):
        opened = read_all(MNIST, place)
        assert opened.splits.keys() == written.keys() and opened.examples.class_names == tuple(
            "0123456789"
        )
        for split, (images, labels) in written.items():
            assert np.array_equal(opened.splits[split]["image"], images[..., np.newaxis])
            assert np.array_equal(opened.splits[split]["label"], labels)


@pytest.mark.parametrize("shards", [1, 2])
def test_idx_in_several_blocks(tmp_path, shards):
    written = make_idx(tmp_path, size=(700, 1000), packed=False, train=5)
    opened = read_all(IDX, str(tmp_path), shards=shards)
    assert len(opened.blocks["train"]) == 3
    assert np.array_equal(opened.splits["train"]["image"][..., 0], written["train"][0])
    assert np.array_equal(opened.splits["train"]["label"], written["train"][1])


def refused(source: arrays.IdxSource, path: pathlib.Path) -> str:
    with pytest.raises(UserError) as error:
        read_all(source, str(path))
    return str(error.value)


def test_idx_missing_files_are_named(tmp_path):
    missing = f"{tmp_path}: missing "
    hint = " (each may end in .gz)"
    assert (
        refused(IDX, tmp_path) == f"{missing}train-images-idx3-ubyte, train-labels-idx1-ubyte{hint}"
    )
    make_idx(tmp_path, train=20)
    assert [*read_all(IDX, str(tmp_path)).splits] == ["train"]
    assert (
        refused(MNIST, tmp_path) == f"{missing}t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte{hint}"
    )
    make_idx(tmp_path, test=3)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert refused(IDX, tmp_path) == f"{missing}t10k-labels-idx1-ubyte{hint}"


def test_idx_contradicting_files_are_named(tmp_path):
    make_idx(tmp_path, classes=11, train=20, test=5)
    assert "train-labels-idx1-ubyte.gz: record 10 has label 10; mnist has labels 0 to 9" in refused(
        MNIST, tmp_path
    )
    make_idx(tmp_path, classes=300, test=15)
    assert read_all(IDX, str(tmp_path)).examples.class_names == tuple(
        map(str, range(15))
    )  # Of any split.
    make_idx(tmp_path, size=(4, 4), test=5)
    expected = "t10k-images-idx3-ubyte.gz: its shape is (5, 4, 4); train has images of (5, 4)"
    assert expected in refused(IDX, tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(
        (tmp_path / "t10k-labels-idx1-ubyte.gz").read_bytes()
    )
    expected = (
        "train-images-idx3-ubyte.gz: its shape is (20, 5, 4); train has images of (5, 4), "
        "and there are 5 labels"
    )
    assert expected in refused(MNIST, tmp_path)


GOOD = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(8)
PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08\x01" + GOOD[4:], "starts with 00000801"),
        (GOOD[:10], "and its sizes"),
        (GOOD[:-1], "cut short"),
        (lzma.compress(GOOD[:-1]), "cut short"),
        (GOOD + b"\0", "too long; its header promises 8 bytes"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2, 0, 2), "empty, cut short"),
        (PACKED[:-9], "cannot be read"),
        (PACKED[:-5] + b"x" + PACKED[-4:], "cannot be read"),
        (PACKED + b"tail", "cannot be read"),
        (lzma.compress(GOOD)[:-9], "cannot be read"),
    ],
)
def test_idx_broken_file_is_named(tmp_path, data, message):
    make_idx(tmp_path, train=2, packed=False)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(UserError, match=f"^{path}: .*{message}"):
        read_all(IDX, str(tmp_path))


def test_plain_file_may_not_change(tmp_path):
    """A plain file is read where it is, and may not change; a packed one is copied."""
    (tmp_path / "work").mkdir()
    for packed in (True, False):
        images, _ = make_idx(tmp_path, train=9, packed=packed)["train"]
        examples = IDX.open(
            str(tmp_path), Opening(directory=str(tmp_path / "work"), splits=Splits())
        )
        (tmp_path / f"train-images-idx3-ubyte{'.gz' * packed}").write_bytes(bytes(5))
        if packed:
            (block,) = examples.blocks(examples.pieces[0])
            assert np.array_equal(block.columns["image"][..., 0], images)
    with pytest.raises(UserError, match="train-images-idx3-ubyte: it has changed or gone since"):
        list(examples.blocks(examples.pieces[0]))


@pytest.fixture(params=[CIFAR10, CIFAR100], ids=lambda source: source.name)
def cifar(request) -> arrays.CifarSource:
    return request.param


def contents(source: arrays.CifarSource) -> dict[str, bytes]:
    """Returns a file's content by its name: random pixels, and a number of records that differs."""
    random, written = np.random.default_rng(0), {}
    for file in itertools.chain(*source.files_of.values()):
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


def assert_holds(
    source: arrays.CifarSource, path: object, files: dict[str, bytes], shards: int = 1
) -> None:
    """Compares every pixel, addressed as the format's description has it: by channel, then row, then column."""
    num_labels = len(source.limits)
    opened = read_all(source, str(path), shards=shards)
    assert opened.splits.keys() == source.files_of.keys()
    for split, columns in opened.splits.items():
        data = b"".join(files[name] for name in source.files_of[split])
        records = np.frombuffer(data, np.uint8).reshape(-1, num_labels + 3072)
        pixels = records[:, num_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        assert np.array_equal(columns["label"], records[:, num_labels - 1])
        assert np.array_equal(columns["image"], pixels)


@pytest.mark.parametrize(("mode", "shards"), [("w", 1), ("w:gz", 7), ("w:xz", 40)])
def test_cifar_archive(bucket, cifar, mode, shards):
    files = contents(cifar)
    path = pack(bucket / "cifar", {"readme.html": b"hello", **dict(reversed(files.items()))}, mode)
    for place in (path, "gs://demo/cifar"):
        assert_holds(cifar, place, files, shards)
    assert [file.path for file in cifar.files(str(path))] == [str(path)]


@pytest.mark.parametrize("inner", [False, True], ids=["the files", "the archive's folder"])
def test_cifar_directory(bucket, cifar, inner):
    files = contents(cifar)
    unpack(bucket / "d" / cifar.folder if inner else bucket / "d", files)
    for place in (str(bucket / "d"), "gs://demo/d"):
        assert_holds(cifar, place, files)
        assert [os.path.basename(file.path) for file in cifar.files(place)] == list(files)


def test_cifar_fine_classes_have_names():
    names = [*CIFAR100.class_names]
    assert names == sorted({*names}) and len(names) == 100 and names[99] == "worm"


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], r"no positive number of whole records"),
        (lambda data: b"", r" 0 bytes"),
        (
            lambda data: b"\x64" + data[1:],
            r"record 0 has label 100; cifar10+ has labels 0 to (9|19)$",
        ),
        (None, r"missing test(_batch)?\.bin; needed are the files of the binary version"),
    ],
)
def test_cifar_broken_file_is_named(tmp_path, cifar, archive, damage, message):
    files = contents(cifar)
    name, data = files.popitem()
    if damage:
        files[name] = damage(data)
    path = pack(tmp_path / "a", files) if archive else unpack(tmp_path / "a", files)
    with pytest.raises(UserError, match=message) as error:
        read_all(cifar, str(path))
    assert str(path) in str(error.value) and name in str(error.value)


def test_cifar_pickles_are_refused(tmp_path):
    files = {f"data_batch_{i}": pickle.dumps(i) for i in range(1, 6)}
    for path in (unpack(tmp_path / "d", files), pack(tmp_path / "cifar-10-python.tar.gz", files)):
        assert f"{path}: missing data_batch_1.bin" in refused(CIFAR10, path)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_cifar_damaged_archive_is_named(tmp_path, mode):
    path = tmp_path / "a"
    packed = pack(path, contents(CIFAR10), mode).read_bytes()
    middle = len(packed) // 2
    damaged = [
        packed[:middle],
        b"\x1f\x8b" + bytes(range(256)) * 9,
        b"",
        b"no archive at all\n" * 99,
    ]
    if mode != "w":  # A plain archive has no checksum over its contents.
        damaged += [
            packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1 :],
            packed[:-4],
        ]
    for data in damaged:
        path.write_bytes(data)
        assert str(path) in refused(CIFAR10, path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
def test_full_disk_is_not_the_source(tmp_path):
    make_idx(tmp_path / "in", train=900)
    (tmp_path / "train-images-idx3-ubyte.gz").symlink_to("/dev/full")
    with pytest.raises(UserError, match=f"^cannot write {tmp_path}/train.*No space left"):
        IDX.open(str(tmp_path / "in"), Opening(directory=str(tmp_path), splits=Splits()))
