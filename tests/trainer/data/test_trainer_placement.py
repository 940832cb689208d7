import concurrent.futures
import shutil
from unittest import mock

import pytest
from numbered import damage, dataset, provided

from common.machine import available_bytes
from tests.errors import user_error
from trainer.data.placement import DEFAULT_DIR, budget, choose


@pytest.fixture
def manifest(tmp_path):
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


def test_files_are_copied_once(tmp_path, manifest):
    places = manifest, tmp_path / "data", tmp_path / "cache"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        (copies,) = {*pool.map(lambda _: provided(*places), range(4))}
    ours, theirs = (
        {path.name: path.read_bytes() for path in folder.glob("train-*")}
        for folder in (tmp_path / "data", copies)
    )
    assert ours == theirs
    shutil.rmtree(tmp_path / "data")
    assert provided(*places) == copies


def test_unwritable_or_full_cache_is_error(tmp_path, manifest, monkeypatch):
    usage = type(shutil.disk_usage(tmp_path))(10, 10, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    for cache, message in ((tmp_path / "cache", " are needed .* free"), ("/dev/null", "writable")):
        with user_error(f"{message}.* --cache-dir"):
            provided(manifest, tmp_path / "data", cache)


def test_local_files_are_verified_once(tmp_path, manifest):
    verified, directory = mock.Mock(), tmp_path / "data"
    for _ in range(2):
        assert provided(manifest, directory, None, verified) == directory
        assert verified.call_count == 6  # three shards and their hashes
    path = directory / manifest.split("train").shards[1].file
    damage(path, -9)
    for cache in (None, tmp_path / "cache"):
        with user_error(f"{path.name} is not the file"):
            provided(manifest, directory, cache)
    assert not [*(tmp_path / "cache").rglob(path.name)]
    path.unlink()
    with user_error(f"{path.name} is missing"):
        provided(manifest, directory, None)
