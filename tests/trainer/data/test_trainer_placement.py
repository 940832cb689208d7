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
def manifest(tmp_path):
    """Returns the manifest of a dataset in `data`."""
    return dataset(tmp_path / "data", 100)


@pytest.mark.parametrize(
    ("data_dir", "cache_dir"),
    [("data", None), ("gs://bucket/data", DEFAULT_DIR), ("/gcs/bucket/data", DEFAULT_DIR)],
)
def test_split_within_budget_is_resident(manifest, data_dir, cache_dir):
    size = sum(shard.bytes for shard in manifest.split("train").shards)
    for budget_bytes, mode in ((size, "resident"), (0.9 * size, "mapped")):
        choice = choose(manifest, data_dir=data_dir, budget_bytes=budget_bytes)
        assert (choice.mode, choice.cache_dir) == (mode, cache_dir)
        copied = f", copied to {cache_dir}" if cache_dir else ""
        assert str(choice).startswith(f"reader: {mode}{copied} (") and "room for" in str(choice)
        assert (
            choose(manifest, data_dir=data_dir, budget_bytes=budget_bytes, wish="mapped").mode
            == "mapped"
        )


def test_budget_is_share_of_memory():
    assert budget(4, on_gpus=False) == pytest.approx(available_bytes() / 2 / 3 / 4, rel=0.2)


@pytest.mark.parametrize("free_mib", [(), (4, 9), (3, 0)], ids=str)
def test_budget_is_bounded_by_each_gpu(tmp_path, monkeypatch, free_mib):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        + "".join(f"echo {mib}\n" for mib in free_mib)
        + ("" if free_mib else "exit 9\n")
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert budget(1, on_gpus=True) == min(free_mib, default=0) * 2**20 / 2


def copy(tmp_path, manifest: Manifest) -> pathlib.Path:
    """Copies `data` to `cache`."""
    choice = Choice(str(tmp_path / "data"), "mapped", "", str(tmp_path / "cache"))
    return pathlib.Path(provide_files(choice, manifest).data_dir)


@pytest.mark.parametrize(
    "files", [None, [picture(4, 5), picture(6, 3)] * 50], ids=["fixed", "files"]
)
def test_files_are_copied_once(tmp_path, files):
    manifest = dataset(tmp_path / "data", 100, files=files)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        (copies,) = {
            job.result() for job in [pool.submit(copy, tmp_path, manifest) for _ in range(4)]
        }
    contents = [
        {path.name: path.read_bytes() for path in folder.glob("train-*")}
        for folder in (tmp_path / "data", copies)
    ]
    assert contents[0] == contents[1]
    shutil.rmtree(tmp_path / "data")
    assert copy(tmp_path, manifest) == copies


def test_damaged_file_is_not_copied(tmp_path, manifest):
    path = tmp_path / "data" / manifest.split("train").shards[1].file
    damage(path, 99)
    for match in ("is not the file", "is missing"):
        with pytest.raises(UserError, match=f"{path.name} {match}"):
            copy(tmp_path, manifest)
        assert not list((tmp_path / "cache").rglob(f"{path.name}*"))
        path.unlink(missing_ok=True)


def test_unwritable_cache_is_error(tmp_path, manifest):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match="--cache-dir"):
        copy(tmp_path, manifest)


def test_full_disk_is_error_with_sizes(tmp_path, manifest, monkeypatch):
    usage = type(shutil.disk_usage(tmp_path))(10, 10, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        UserError, match=r"--cache-dir \S+: 0.0 MB are needed there .* 0.0 MB are free"
    ):
        copy(tmp_path, manifest)


def test_local_files_are_verified_once(tmp_path, manifest):
    calls, choice = [], Choice(str(tmp_path / "data"), "mapped", "", None)
    for _ in range(2):
        assert provide_files(choice, manifest, lambda: calls.append(1)) == choice
        assert len(calls) == 6  # three shards and their hashes
    path = tmp_path / "data" / manifest.split("train").shards[1].file
    damage(path, -9)
    with pytest.raises(UserError, match=f"{path.name} is not the file"):
        provide_files(choice, manifest)
