import dataclasses
import io
import pathlib
import tarfile

import numpy as np
import pytest
from divided import whole

from common.errors import UserError
from components.convert.sources.cifar import CIFAR10, CIFAR100

RECORDS = 7  # a file of an archive has as many as the original; here the original is small


@pytest.fixture(params=[CIFAR10, CIFAR100], ids=lambda reader: reader.name)
def reader(request):
    files_of = {split: dict.fromkeys(files, RECORDS) for split, files in request.param.files_of.items()}
    return dataclasses.replace(request.param, files_of=files_of)


def contents(reader, records: int = RECORDS) -> dict[str, bytes]:
    """A file's content by its name, with random pixels."""
    made = {}
    for file in (file for files in reader.files_of.values() for file in files):
        random = np.random.default_rng(len(made))
        labels = [random.integers(0, values, records) for values in reader.labels]
        pixels = random.integers(0, 256, (records, 3072))
        made[file] = np.column_stack([*labels, pixels]).astype(np.uint8).tobytes()
    return made


def pack(path: pathlib.Path, files: dict[str, bytes], mode: str = "w:gz", *, folder: str = "x/y/../z/") -> pathlib.Path:
    with tarfile.open(path, mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(folder + name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def unpack(directory: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    directory.mkdir(parents=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


def assert_holds(source, reader, files: dict[str, bytes]) -> None:
    """Every pixel, addressed as the format's description has it: by channel, then row, then column."""
    for split, names in reader.files_of.items():
        data = b"".join(files[name] for name in names)
        records = np.frombuffer(data, np.uint8).reshape(-1, len(reader.labels) + 3072)
        pixels = records[:, len(reader.labels) :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(source.splits[split]["label"], records[:, len(reader.labels) - 1])
        np.testing.assert_array_equal(source.splits[split]["image"], pixels)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_an_archive_is_known_by_its_content_in_any_order_of_members_wherever_it_lies(tmp_path, bucket, reader, mode):
    files = contents(reader)
    path = pack(tmp_path / "cifar", {"readme.html": b"hello", **dict(reversed(files.items()))}, mode)
    assert_holds(whole(reader, str(path)), reader, files)
    assert [file.path for file in reader.files(str(path))] == [str(path)]
    assert {p.name for p in tmp_path.iterdir()} - {"buckets", "uploading"} == {"cifar"}
    path.rename(bucket / "cifar")
    assert_holds(whole(reader, "gs://demo/cifar"), reader, files)


@pytest.mark.parametrize("inner", [False, True], ids=["the files", "the archive's folder"])
def test_a_directory_may_hold_any_number_of_records(tmp_path, reader, inner):
    files = {name: data[: len(data) // RECORDS * (1 + i)] for i, (name, data) in enumerate(contents(reader).items())}
    unpack(tmp_path / "d" / reader.folder if inner else tmp_path / "d", files)
    assert_holds(whole(reader, str(tmp_path / "d")), reader, files)
    assert [pathlib.Path(file.path).name for file in reader.files(str(tmp_path / "d"))] == list(files)


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], r"bytes"),
        (lambda data: b"", r" 0 bytes"),
        (lambda data: b"\x64" + data[1:], r"record 0 has label 100; cifar10+ has labels 0 to (9|19)$"),
        (None, r"missing test(_batch)?\.bin"),
    ],
)
def test_a_broken_file_is_named(tmp_path, reader, archive, damage, message):
    files = contents(reader)
    name, data = files.popitem()
    if damage:
        files[name] = damage(data)
    path = pack(tmp_path / "a", files) if archive else unpack(tmp_path / "a", files)
    with pytest.raises(UserError, match=message) as error:
        whole(reader, str(path))
    assert str(path) in str(error.value) and name in str(error.value)


def test_a_directory_with_only_the_archive_names_it(tmp_path, reader):
    (tmp_path / "d").mkdir()
    pack(tmp_path / "d" / "cifar-binary.tar.gz", contents(reader))
    with pytest.raises(UserError, match=r"missing .*; cifar-binary.tar.gz is there: give it as --source"):
        whole(reader, str(tmp_path / "d"))


def test_the_fine_label_is_the_class(tmp_path):
    record = bytes([19, 99]) + bytes(3072)
    source = whole(CIFAR100, str(unpack(tmp_path / "a", {"train.bin": record, "test.bin": record})))
    assert source.class_names[source.splits["train"]["label"][0]] == "worm"
    assert source.class_names == tuple(sorted(source.class_names)) and len(set(source.class_names)) == 100


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_damaged_archive_is_named(tmp_path, reader, mode):
    path = tmp_path / "a"
    packed = pack(path, contents(reader), mode).read_bytes()
    middle = len(packed) // 2
    damaged = [packed[:middle], b"\x1f\x8b" + bytes(range(256)) * 9, b"", b"no archive at all\n" * 99]
    if mode != "w":  # a plain archive has no checksum over its contents
        damaged += [packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1 :], packed[:-4]]
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(UserError, match=str(path)):
            whole(reader, str(path))
