"""The contract of `Storage`, for each implementation.

These are a local directory, and a bucket of a store on this machine.
"""

import os
import socket
import time

import numpy as np
import pytest

from common.storage.files import (
    copy_tree,
    crc32c,
    crc32c_of,
    delete_files,
    list_files,
    list_folder,
    open_file,
    read_bytes,
    read_json,
    sha256_of,
    stat_file,
    tree_digest,
    write_bytes,
)
from common.storage.storage import map_in_threads, storage_of
from tests.cloud.objects import Objects
from tests.errors import user_error
from tests.programs import wait_until

_LARGE = os.urandom(12 << 20)


@pytest.fixture(params=["local", "bucket"])
def disk(request, tmp_path):
    """Returns the directory that keeps the files of `folder`, whatever storage that is."""
    root = tmp_path if request.param == "local" else request.getfixturevalue("bucket")
    (root / "folder").mkdir()
    return root / "folder"


@pytest.fixture
def folder(disk):
    """Returns an empty folder."""
    return "gs://demo/folder" if disk.parent.name == "demo" else str(disk)


@pytest.fixture(params=[b"small", _LARGE], ids=["small", "large"])
def content(request):
    """Returns the content of a file that is sent in one request, or by a resumable upload."""
    return request.param


def fill(disk, **contents):
    for name, content in contents.items():
        path = disk / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def paths(files):
    return [file.path for file in files]


def test_stat_file_or_folder(disk, folder):
    fill(disk, a__one=b"1", b=b"22")
    file = stat_file(f"{folder}/b")
    assert (file.path, file.num_bytes) == (f"{folder}/b", 2)
    assert file.crc32c in ("", crc32c(b"22")) and abs(file.updated_s - time.time()) < 60
    assert [stat_file(f"{folder}/{name}") for name in ("a", "", "none")] == [None] * 3


def test_list_folder_and_below(disk, folder):
    fill(disk, a__one=b"1", a__sub__two=b"22", ab__three=b"333", **{"a.csv": b"4444"})
    below = [(f"{folder}/a/one", 1), (f"{folder}/a/sub/two", 2)]
    for name in ("a", "a/"):
        assert [(file.path, file.num_bytes) for file in list_files(f"{folder}/{name}")] == below
        folders, files = list_folder(f"{folder}/{name}")
        assert (folders, paths(files)) == ([f"{folder}/a/sub"], [f"{folder}/a/one"])
    assert list_files(f"{folder}/a.csv") == [stat_file(f"{folder}/a.csv")]
    assert list_folder(folder)[0] == [f"{folder}/a", f"{folder}/ab"]
    assert len(list_files(os.path.dirname(folder))) == 4
    assert (list_files(f"{folder}/none"), list_folder(f"{folder}/none")) == ([], ([], []))


def test_range_is_read_once_and_ahead(disk, folder, bytes_read):
    fill(disk, a=(content := os.urandom(30 << 20)))
    with open_file(stat_file(f"{folder}/a"), 1 << 20, 29 << 20) as data:
        assert data.read(10) == content[1 << 20 :][:10]
        wait_until(lambda: bytes_read() >= 16 << 20 or not folder.startswith("gs:"), 10)
        data.seek(1 << 20)
        pieces = iter(lambda: data.read(min(1 << 20, (29 << 20) - data.tell())), b"")
        assert b"".join(pieces) == content[1 << 20 : 29 << 20]
    assert 28 << 20 <= bytes_read() <= (28 << 20) + (128 << 10)


@pytest.mark.parametrize("content", [b"2" * 9, None])
def test_changed_file_is_not_read(disk, folder, content):
    fill(disk, a=b"1" * 9)
    file = stat_file(f"{folder}/a")
    assert stat_file(f"{folder}/a") == file
    fill(disk, a=content) if content else (disk / "a").unlink()
    with user_error(f"^{folder}/a: it has changed or gone since it was"):
        open_file(file).read()


def test_missing_file_is_named(folder):
    with pytest.raises(FileNotFoundError, match=f"{folder}/none"):
        open_file(f"{folder}/none")
    delete_files([f"{folder}/none"])
    assert read_bytes(f"{folder}/none") is None and read_json(f"{folder}/none") is None


def test_small_file_is_read(disk, folder):
    content = bytes(range(100))
    fill(disk, a=b"", b=content)
    assert read_bytes(f"{folder}/a") == b"" and read_bytes(f"{folder}/b", 100) == content
    with open_file(f"{folder}/b") as data:
        assert [data.seek(90), data.read(5), data.seek(3), data.read()] == [
            *(90, content[90:95]),
            *(3, content[3:]),
        ]
    with user_error("it has more than 99 bytes"):
        read_bytes(f"{folder}/b", 99)


def test_writer_publishes_complete_file(disk, folder, content):
    with storage_of(folder).create(f"{folder}/sub/a") as file:
        for start in range(0, len(content), 300_000):
            file.write(np.frombuffer(content[start : start + 300_000], np.uint8))
            assert not list_files(f"{folder}/sub/a")
    assert (disk / "sub" / "a").read_bytes() == content
    assert (file.file.path, file.file.num_bytes) == (f"{folder}/sub/a", len(content))
    assert file.file.crc32c == crc32c(content) == crc32c_of(f"{folder}/sub/a")
    assert file.file.version == stat_file(f"{folder}/sub/a").version
    assert paths(list_files(folder)) == [f"{folder}/sub/a"]


def test_failed_writer_leaves_old_file(disk, folder, content):
    fill(disk, a=b"before")
    with pytest.raises(KeyError), storage_of(folder).create(f"{folder}/a") as file:
        file.write(content)
        raise KeyError
    assert paths(list_files(folder)) == [f"{folder}/a"] and (disk / "a").read_bytes() == b"before"


def test_new_file_is_made_once(disk, folder):
    for _ in range(2):  # The second one has the same content.
        write_bytes(f"{folder}/a", b"mine", if_version="")
    with pytest.raises(FileExistsError):
        write_bytes(f"{folder}/a", b"other", if_version="")
    assert (disk / "a").read_bytes() == b"mine" and len(list_files(folder)) == 1


def test_stale_version_is_not_replaced(disk, folder):
    stale = write_bytes(f"{folder}/a", b"first").version
    fill(disk, a=b"second")
    with pytest.raises(FileExistsError):
        write_bytes(f"{folder}/a", b"third", if_version=stale)
    storage_of(folder).delete(f"{folder}/a", if_version=stale)
    content, version = storage_of(folder).read(f"{folder}/a", None)
    assert content == b"second" and len(list_files(folder)) == 1
    if folder.startswith("gs:"):
        version = write_bytes(f"{folder}/a", b"third", if_version=version).version
    storage_of(folder).delete(f"{folder}/a", if_version=version)
    assert not list_files(folder)


def test_tree_digest_follows_names_and_contents(disk, folder, tmp_path_factory):
    """Copies anywhere have one digest, and a changed or renamed file gives another."""
    source = tmp_path_factory.mktemp("tree")
    fill(source, a=b"1", c__d=b"22", c__e__f=b"")
    copy_tree(source, f"{folder}/one")
    copy_tree(f"{folder}/one", f"{folder}/two/three")
    digest = tree_digest(source)
    assert tree_digest(f"{folder}/one") == tree_digest(f"{folder}/two/three/") == digest
    file, copied = source / "c" / "d", f"{folder}/one/c/d"
    assert (sha256_of(file), crc32c_of(file)) == (sha256_of(copied), crc32c_of(copied))
    file.write_bytes(b"2!")
    changed = tree_digest(source)
    file.rename(source / "c" / "g")
    assert len({digest, changed, tree_digest(source)}) == 3
    assert tree_digest(f"{folder}/one") == digest  # A copy shares nothing with its source.


@pytest.mark.cluster
def test_bucket_listing_of_several_pages(bucket):
    names = [f"{number % 3:02}/{number}" for number in range(1100)]
    for name in names:
        (bucket / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (bucket / "data" / name).write_bytes(b"")
    assert paths(list_files("gs://demo/data")) == sorted(f"gs://demo/data/{name}" for name in names)


def test_bucket_refuses_damaged_upload(bucket, content, monkeypatch):
    put = Objects.put
    monkeypatch.setattr(
        Objects,
        "put",
        lambda self, bucket, name, data, query: put(self, bucket, name, b"?" + data[1:], query),
    )
    with user_error(r"gs://demo/a cannot be used: 400.* CRC32C"):
        write_bytes("gs://demo/a", content)
    assert not list_files("gs://demo")


def test_bucket_that_fails_at_times(faults, bucket):
    """Whatever fails, and wherever a transfer breaks, each file is there, and complete."""
    contents = [os.urandom(1 << 10) for _ in range(70)] + [os.urandom(20 << 20)]
    large = "parts.*70"
    rules = [
        {"match": "", "status": 503, "share": 0.04},
        {"match": "", "status": 429, "share": 0.01},
        # Each in mid-transfer, once: the answer of an upload that is complete, and a download.
        {"match": "POST .*upload.*uploadType=multipart", "cut": True, "times": 1},
        {"match": f"PUT .*{large}", "reset": True, "times": 1},
        {"match": f"GET .*{large}.*alt=media", "cut": True, "times": 1},
    ]
    faults.set("store", rules)

    def write(number):
        return write_bytes(f"gs://demo/parts/{number:02}", contents[number], if_version="")

    parts = map_in_threads(write, range(len(contents)))
    last = parts[-1]
    middle = last.num_bytes // 2
    with open_file(last, 0, middle) as one, open_file(last, middle, last.num_bytes) as other:
        assert one.read(middle) + other.read() == contents[-1]
    assert paths(list_files("gs://demo")) == paths(parts)
    written = sorted((bucket / "parts").iterdir())
    assert [path.read_bytes() for path in written] == contents
    delete_files(paths(parts[:-1]))
    assert paths(list_files("gs://demo")) == [last.path]


def test_bucket_that_is_down(monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(ConnectionError, match="gs://demo/a cannot be used"):
            write_bytes("gs://demo/a", b"", timeout_s=1.0)


def test_unknown_bucket_and_scheme(bucket):
    with user_error(r"gs://none/a cannot be used: 404"):
        write_bytes("gs://none/a", b"")
    with user_error(r"ftp:// is no storage"):
        stat_file("ftp://host/a")


def test_linked_folders_are_listed_once(tmp_path):
    source, elsewhere = tmp_path / "source", tmp_path / "elsewhere"
    fill(source, a__one=b"1")
    fill(elsewhere, b__two=b"2")
    (source / "link").symlink_to(elsewhere)
    names = ["a/one", "link/b/two"]
    assert paths(list_files(str(source))) == [f"{source}/{name}" for name in names]
    for loop in (source / "a" / "up", elsewhere / "back", source / "twice"):
        loop.symlink_to(source if loop.name != "twice" else elsewhere)
        with user_error("is the same folder as "):
            list_files(str(source))
        loop.unlink()
