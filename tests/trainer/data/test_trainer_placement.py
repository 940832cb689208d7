import concurrent.futures
import pathlib
import shutil

import pytest
from numbered import damage, dataset, picture

from common.errors import UserError
from common.machine import available_bytes
from common.manifest import Manifest
from trainer.data.placement import DEFAULT_DIR, Choice, budget, choose, provide_files


@pytest.fixture
def manifest(tmp_path) -> Manifest:
    """Returns the manifest of a dataset in `data`."""
    return dataset(tmp_path / "data", 100)


@pytest.mark.parametrize(
    ("data_dir", "cache_dir"),
    [("data", None), ("gs://b/data", DEFAULT_DIR), ("/gcs/b", DEFAULT_DIR)],
)
def test_split_within_budget_is_resident(manifest, data_dir, cache_dir):
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    for room, wish, mode in (
        (size, "auto", "resident"),
        (0.9 * size, "auto", "mapped"),
        (size, "mapped", "mapped"),
    ):
        choice = choose(manifest, data_dir=data_dir, budget_bytes=room, wish=wish)
        assert (choice.mode, choice.cache_dir) == (mode, cache_dir)


def test_budget_is_share_of_memory(tmp_path, monkeypatch):
    """The machine's replicas share its memory; of several GPUs the one with least counts."""
    assert budget(4, on_gpus=False) == pytest.approx(available_bytes() / 2 / 3 / 4, rel=0.2)
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 9\necho 4\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert budget(1, on_gpus=True) == 4 * 2**20 / 2


def copy(tmp_path, manifest: Manifest) -> pathlib.Path:
    """Copies `data` to `cache`."""
    choice = Choice(str(tmp_path / "data"), "mapped", "", str(tmp_path / "cache"))
    return pathlib.Path(provide_files(choice, manifest).data_dir)


@pytest.mark.parametrize("files", [None, [picture(4, 5)] * 100], ids=["fixed", "files"])
def test_files_are_copied_once(tmp_path, files):
    manifest = dataset(tmp_path / "data", 100, files=files)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        (copies,) = {*pool.map(copy, [tmp_path] * 4, [manifest] * 4)}
    ours, theirs = (
        {path.name: path.read_bytes() for path in folder.glob("train-*")}
        for folder in (tmp_path / "data", copies)
    )
    assert ours == theirs
    shutil.rmtree(tmp_path / "data")
    assert copy(tmp_path, manifest) == copies


def test_unwritable_or_full_cache_is_error(tmp_path, manifest, monkeypatch):
    usage = type(shutil.disk_usage(tmp_path))(10, 10, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"--cache-dir \S+: 0.0 MB are needed .* 0.0 MB are free"):
        copy(tmp_path, manifest)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="--cache-dir"):
        copy(tmp_path, manifest)


def test_failing_bucket_is_no_user_error(tmp_path, manifest):
    def fail():
        raise ConnectionError("the bucket does not answer")

    with pytest.raises(ConnectionError, match="does not answer"):
        provide_files(
            Choice(str(tmp_path / "data"), "mapped", "", str(tmp_path / "c")), manifest, fail
        )


def test_local_files_are_verified_once(tmp_path, manifest):
    calls, choice = [], Choice(str(tmp_path / "data"), "mapped", "", None)
    for _ in range(2):
        assert provide_files(choice, manifest, lambda: calls.append(1)) == choice
        assert len(calls) == 6  # three shards and their hashes
    path = tmp_path / "data" / manifest.split("train").shards[1].file
    damage(path, -9)
    with pytest.raises(UserError, match=f"{path.name} is not the file"):
        provide_files(choice, manifest)
