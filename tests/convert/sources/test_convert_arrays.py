import gzip
import io
import itertools
import lzma
import re
import struct
import tarfile

import numpy as np
import pytest
from dataset_files import idx_bytes, make_idx, write_files
from opened import read_all

from components.convert.sources.arrays import ARRAYS
from tests.errors import user_error

MNIST, IDX, CIFAR10, CIFAR100 = map(ARRAYS.get, ("mnist", "idx", "cifar10", "cifar100"))


@pytest.mark.parametrize("packed", [False, True])
def test_idx_original_names(tmp_path, packed):
    written = make_idx(tmp_path, packed=packed, train=7, test=3)
    for path in tmp_path.glob("train*"):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    opened = read_all(MNIST, str(tmp_path))
    assert opened.splits.keys() == written.keys()
    for split, (images, labels) in written.items():
        assert np.array_equal(opened.splits[split]["image"], images[..., np.newaxis])
        assert np.array_equal(opened.splits[split]["label"], labels)


def refused(source, path):
    with user_error() as error:
        read_all(source, str(path))
    return str(error.value)


def test_idx_missing_files_are_named(tmp_path, capsys):
    assert "has no train-images-idx3-ubyte, train-labels-idx1-ubyte" in refused(IDX, tmp_path)
    make_idx(tmp_path, train=20)
    assert [*read_all(IDX, str(tmp_path)).splits] == ["train"]
    assert f"{tmp_path}: no files for test, which is drawn" in capsys.readouterr().out
    make_idx(tmp_path, test=3)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert f"{tmp_path}: has no t10k-labels-idx1-ubyte;" in refused(IDX, tmp_path)


def test_idx_contradicting_files_are_named(tmp_path):
    make_idx(tmp_path, classes=11, train=20, test=5)
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    assert f"{labels}: record 10 has label 10" in refused(MNIST, tmp_path)
    make_idx(tmp_path, classes=300, test=15)  # Classes are those of any split.
    assert len(read_all(IDX, str(tmp_path)).examples.class_names) == 15
    make_idx(tmp_path, size=(4, 4), test=5)
    assert "its images have the shape (4, 4, 1), and those of train (5, 4" in refused(IDX, tmp_path)
    make_idx(tmp_path, test=6)
    write_files(tmp_path, {"t10k-labels-idx1-ubyte.gz": idx_bytes(np.zeros(7, np.uint8))})
    assert "t10k-images-idx3-ubyte.gz: has 6 images, with 7 labels" in refused(IDX, tmp_path)


GOOD = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(8)
PACKED = gzip.compress(GOOD, mtime=0)  # Names of tests must not follow the clock.


@pytest.mark.parametrize(
    ("data", "message"),
    {
        b"": "not a whole IDX file of unsigned bytes in 3 dim",
        b"\x00\x00\x08\x01" + GOOD[4:]: "which starts with 00000803 and its sizes",
        GOOD[:10]: "not a whole",
        GOOD[:-1]: "not a whole",
        GOOD + b"\0": "not a whole",
        struct.pack(">4B3I", 0, 0, 8, 3, 2, 0, 2): "not a whole",
        PACKED[:-5] + b"x" + PACKED[-4:]: "cannot be read",
        lzma.compress(GOOD)[:-9]: "cannot be read",
    }.items(),
)
def test_idx_broken_file_is_named(tmp_path, data, message):
    make_idx(tmp_path, train=2, packed=False)
    write_files(tmp_path, {"train-images-idx3-ubyte": data})
    assert re.match(f"{tmp_path}/train-images-idx3-ubyte: .*{message}", refused(IDX, tmp_path))


@pytest.fixture(params=[CIFAR10, CIFAR100], ids=lambda source: source.name)
def cifar(request):
    return request.param


@pytest.fixture
def files(cifar):
    """The content of each file: random pixels, and a number of records that differs."""
    random = np.random.default_rng(0)
    written = {}
    for file in itertools.chain(*cifar.files_of.values()):
        shape = (3 + len(written), cifar.label_bytes + 3072)
        records = random.integers(0, 256, shape, np.uint8)
        records[:, : cifar.label_bytes] %= len(cifar.class_names)
        written[file] = records.tobytes()
    return written


def put(path, files, form):
    """Writes files into a folder, in a folder of it, or in a mode of `tarfile` into an archive."""
    if form in ("", "batches"):
        write_files(path / form, files)
        return path
    with tarfile.open(path, form) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"x/y/../z/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("form", ["w", "w:xz", "", "batches"])
def test_cifar_has_all_pixels(bucket, cifar, files, form):
    """A record has its pixels by channel, then by row, then by column."""
    put(bucket / "cifar", {"readme.html": b"hi", **dict(reversed(files.items()))}, form)
    num_labels = cifar.label_bytes
    opened = read_all(cifar, "gs://demo/cifar", shards=7)
    assert opened.splits.keys() == cifar.files_of.keys()
    for split, columns in opened.splits.items():
        data = b"".join(files[name] for name in cifar.files_of[split])
        records = np.frombuffer(data, np.uint8).reshape(-1, num_labels + 3072)
        pixels = records[:, num_labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        assert np.array_equal(columns["label"], records[:, num_labels - 1])
        assert np.array_equal(columns["image"], pixels)


@pytest.mark.parametrize("form", ["", "w:gz"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "no positive number of whole records"),
        (lambda data: b"", " 0 bytes"),
        (lambda data: b"\x64\x64" + data[2:], "record 0 has label 100"),
        (None, r"has no (data_batch_1|train)\.bin"),
    ],
)
def test_cifar_broken_file_is_named(tmp_path, cifar, files, form, damage, message):
    name = next(iter(files))
    data = files.pop(name)
    if damage:
        files[name] = damage(data)
    path = put(tmp_path / "a", files, form)
    line = refused(cifar, path)
    assert re.search(message, line) and str(path) in line and name in line


def test_cifar_damaged_archive_is_named(tmp_path):
    write_files(tmp_path, {"a": b"no archive at all\n" * 99})
    assert f"{tmp_path}/a" in refused(CIFAR10, tmp_path / "a")
