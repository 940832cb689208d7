"""An error of a source that cannot be read names its path, and not the output."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from small_sources import LISTED, REQUIRED, make

from common.errors import UserError
from components.convert import output
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import source_digest

ROOT = pathlib.Path(__file__).parents[3]


def gone(path: pathlib.Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def dangling(path: pathlib.Path) -> None:
    gone(path)
    path.symlink_to(path.with_name("nowhere"))


def loop(path: pathlib.Path) -> None:
    gone(path)
    path.symlink_to(path.name)


def exchanged(path: pathlib.Path) -> None:
    """A directory where a file should be, and a file where a directory should be."""
    was_directory = path.is_dir()
    gone(path)
    path.write_bytes(b"no image") if was_directory else path.mkdir()


CASES = [
    (dataset, place, broken)
    for all_places, breaks in (
        (REQUIRED, (gone, dangling, loop, exchanged)),
        (LISTED, (dangling, loop)),
    )
    for dataset, places in all_places.items()
    for place in places
    for broken in breaks
]


@pytest.mark.parametrize(("dataset", "place", "broken"), CASES)
def test_unreadable_path_is_named(tmp_path, fails, dataset, place, broken):
    flags, path = make(dataset, place, tmp_path)
    broken(path)
    listed = [part for name, value in flags.items() for part in (f"--{name}", value)]
    line = fails(*listed, "--output", tmp_path / "out")
    assert (
        "--output" not in line
        and path.name in line
        and sorted(os.listdir(tmp_path)) in ([], ["source"])
    )
    if (dataset, place, broken) != ("cifar10", "", exchanged):  # which may be an archive
        with pytest.raises(UserError, match=path.name):
            source_digest(flags["dataset"], flags["source"], flags.get("schema"))


@pytest.mark.parametrize("dataset", ["csv", "parquet", "tfrecord"])
def test_other_files_are_named_once(tmp_path, capsys, dataset):
    flags, source = make(dataset, "", tmp_path)
    strays = ["2023/b.csv.lz4", *(f"c{i}.csv.bz2" for i in range(7))]
    for name in (*strays, ".hidden", "_SUCCESS"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).touch()
    os.mkfifo(source / f"2023/pipe.{dataset}")
    convert(Options(**flags, output=str(tmp_path / "out")))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "left out" in line)
    names = ", ".join(["2023/b.csv.lz4", f"2023/pipe.{dataset}", *strays[1:4]])
    assert line.startswith(
        f"{source}: left out: {names} and {4 if dataset == 'tfrecord' else 5} more ("
    )


@pytest.mark.parametrize("where", ["x" * 300, "loop/out", "file/out"])
def test_impossible_output_is_refused(tmp_path, fails, where):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("precious")
    assert f"cannot write --output {tmp_path / where}: " in fails("--output", tmp_path / where)


@pytest.mark.cluster  # a process
def test_closed_pipe_is_no_error(tmp_path):
    command = f"{sys.executable} -m components.convert --output {tmp_path / 'out'}"
    run = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode in (0, 141) and run.stderr == ""


def test_forbidden_shard_is_not_damaged(tmp_path, monkeypatch):
    convert(Options(output=str(tmp_path)))

    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(output, "crc32c_of", denied)
    with pytest.raises(UserError, match=r"-0000\d.tfrecord: cannot be read \(Permission denied\)"):
        convert(Options(output=str(tmp_path)))
