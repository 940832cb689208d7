"""An error of a source that cannot be read names its path, and not the output."""

import os
import shutil

import kinds
import pytest
from dataset_files import convert_to, write_files

from components.convert.sources.registry import find_source
from tests.errors import user_error


@pytest.mark.parametrize("link", ["nowhere", "itself"])
@pytest.mark.parametrize("place", ["source", "schema.yaml", "file"])
@pytest.mark.parametrize("kind", kinds.KINDS)
def test_unreadable_path_is_named(tmp_path, fails, kind, place, link):
    flags = kinds.make(kind, tmp_path)
    files = [path for path in (tmp_path / "source").rglob("*") if path.is_file()]
    path = max(files) if place == "file" or not (tmp_path / place).exists() else tmp_path / place
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.name if link == "itself" else link)
    listed = [part for name, value in flags.items() for part in (f"--{name}", value)]
    line = fails(*listed, "--output", tmp_path / "out")
    assert "--output" not in line and path.name in line and not (tmp_path / "out").exists()
    with user_error(path.name):
        find_source(kind, flags["source"], schema=flags.get("schema")).digest(flags["source"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_files_are_named_once(tmp_path, capsys, kind):
    flags, source = kinds.make(kind, tmp_path), tmp_path / "source"
    write_files(source, dict.fromkeys(["c.csv.bz2", ".hidden", "_SUCCESS"], ""))
    os.mkfifo(source / f"2023.{kind}")
    convert_to(tmp_path / "out", **flags)
    assert capsys.readouterr().out.count(f"left out: 2023.{kind}, c.csv.bz2 (") == 1
