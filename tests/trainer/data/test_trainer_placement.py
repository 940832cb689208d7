import concurrent.futures
import pathlib
import shutil

import pytest
from numbered import dataset, picture

from common.errors import UserError
from common.machine import available_bytes
from common.manifest import Manifest
from trainer.data.placement import DEFAULT_DIR, Choice, budget, choose, provide_files


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    directory = tmp_path_factory.mktemp("numbered") / "data"
    dataset(directory, 100)
    return directory


def chosen(directory: pathlib.Path, **changes):
    manifest = Manifest.load(directory)
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    arguments = {"data_dir": str(directory), "budget_bytes": changes.pop("times", 2) * size}
    return choose(manifest, **{**arguments, **changes})


def test_split_that_fits_is_resident(numbered):
    assert chosen(numbered).mode == "resident"
    small = chosen(numbered, times=0.9)
    assert (small.mode, small.cache_dir) == ("mapped", None)
    assert str(small).startswith("reader: mapped (") and "room for" in str(small)
    for mode in ("resident", "mapped"):
        assert str(chosen(numbered, wish=mode, times=0.1)) == f"reader: {mode} (as --reader says)"


@pytest.mark.parametrize("remote", ["gs://bucket/data", "/gcs/bucket/data"])
def test_remote_split_is_copied(numbered, remote):
    for times, mode in ((1, "resident"), (0.9, "mapped")):
        choice = chosen(numbered, data_dir=remote, times=times)
        assert (choice.mode, choice.cache_dir) == (mode, DEFAULT_DIR)
        assert f", copied to {DEFAULT_DIR} (" in str(choice)


def test_budget_is_a_share_of_memory():
    assert budget(4, on_gpus=False) == pytest.approx(available_bytes() / 2 / 3 / 4, rel=0.2)


@pytest.mark.parametrize("free_mib", [(), (4, 9), (3, 0)], ids=str)
def test_budget_is_bounded_by_each_gpu(tmp_path, monkeypatch, free_mib):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + "".join(f"echo {mib}\n" for mib in free_mib) + ("" if free_mib else "exit 9\n"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert budget(1, on_gpus=True) == min(free_mib, default=0) * 2**20 / 2


def copied(tmp_path, manifest: Manifest) -> pathlib.Path:
    """Copies `data` to `cache`."""
    choice = Choice(str(tmp_path / "data"), "mapped", "as asked for", str(tmp_path / "cache"))
    return pathlib.Path(provide_files(choice, manifest).data_dir)


@pytest.mark.parametrize("files", [None, [picture(4, 5), picture(6, 3)] * 50], ids=["fixed", "files"])
def test_files_are_copied_once(tmp_path, files):
    manifest = dataset(tmp_path / "data", 100, files=files)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        (copies,) = {job.result() for job in [pool.submit(copied, tmp_path, manifest) for _ in range(4)]}
    originals = sorted((tmp_path / "data").glob("train-*"))
    assert copies.name == manifest.fingerprint
    assert sorted(path.name for path in copies.glob("train-*")) == [path.name for path in originals]
    for path in originals:
        assert (copies / path.name).read_bytes() == path.read_bytes()
    shutil.rmtree(tmp_path / "data")
    assert copied(tmp_path, manifest) == copies


def test_damaged_file_is_not_copied(tmp_path):
    manifest = dataset(tmp_path / "data", 100)
    path = tmp_path / "data" / manifest.split("train").shards[1].file
    content = bytearray(path.read_bytes())
    content[99] ^= 1
    path.write_bytes(content)
    for match in ("is not the file", "is missing"):
        with pytest.raises(UserError, match=f"{path.name} {match}"):
            copied(tmp_path, manifest)
        assert not list((tmp_path / "cache").rglob(f"{path.name}*"))
        path.unlink(missing_ok=True)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="--cache-dir"):
        copied(tmp_path, manifest)


def test_disk_without_room_is_refused_with_the_needed_size(tmp_path, monkeypatch):
    manifest = dataset(tmp_path / "data", 100)
    usage = type(shutil.disk_usage(tmp_path))(10, 10, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"--cache-dir \S+: 0.0 MB are needed there .* 0.0 MB are free"):
        copied(tmp_path, manifest)


def test_local_files_are_verified_once(tmp_path):
    manifest, calls = dataset(tmp_path / "data", 100), []
    choice = Choice(str(tmp_path / "data"), "mapped", "as asked for", None)
    for expected in (6, 6):  # three shards and their hashes, and nothing when they are known
        assert provide_files(choice, manifest, lambda: calls.append(1)) == choice
        assert len(calls) == expected
    path = tmp_path / "data" / manifest.split("train").shards[1].file
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"{path.name} is not the file"):
        provide_files(choice, manifest)
