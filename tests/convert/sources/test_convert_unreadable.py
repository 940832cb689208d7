"""An error of a source that cannot be read names its path, and not the output."""

import os
import shutil

import pytest
from dataset_files import convert_to, write_files
from small_sources import LISTED, REQUIRED, make

from common.errors import UserError
from components.convert.sources.registry import source_digest

PLACES = [
    (dataset, place, harm)
    for places, harms in ((REQUIRED, ("gone", "dangling", "loop")), (LISTED, ("dangling", "loop")))
    for dataset in places
    for place in places[dataset]
    for harm in harms
]


@pytest.mark.parametrize(("dataset", "place", "harm"), PLACES)
def test_unreadable_path_is_named(tmp_path, fails, dataset, place, harm):
    flags, path = make(dataset, place, tmp_path)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if harm != "gone":
        path.symlink_to(path.name if harm == "loop" else path.with_name("nowhere"))
    listed = [part for name, value in flags.items() for part in (f"--{name}", value)]
    line = fails(*listed, "--output", tmp_path / "out")
    assert "--output" not in line and path.name in line
    assert sorted(os.listdir(tmp_path)) in ([], ["source"])
    with pytest.raises(UserError, match=path.name):
        source_digest(flags["dataset"], flags["source"], flags.get("schema"))


@pytest.mark.parametrize("dataset", ["csv", "parquet", "tfrecord"])
def test_other_files_are_named_once(tmp_path, capsys, dataset):
    flags, source = make(dataset, "", tmp_path)
    strays = ["2023/b.csv.lz4", *(f"c{i}.csv.bz2" for i in range(7))]
    write_files(source, dict.fromkeys([*strays, ".hidden", "_SUCCESS"], ""))
    os.mkfifo(source / f"2023/pipe.{dataset}")
    convert_to(tmp_path / "out", **flags)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "left out" in line)
    names = ", ".join(["2023/b.csv.lz4", f"2023/pipe.{dataset}", *strays[1:4]])
    more = 4 if dataset == "tfrecord" else 5
    assert line.startswith(f"{source}: left out: {names} and {more} more (")
