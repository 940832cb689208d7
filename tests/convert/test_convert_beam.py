"""Conversions on Apache Beam: the bytes are those of one process here.

`make test-beam` makes the environment.
"""

import contextlib
import os
import random
import shutil
import time

import kinds
import psutil
import pytest
from dataset_files import read_folder, write_files

from components.convert import beam
from components.convert.__main__ import main
from components.convert.options import Options
from tests import programs
from tests.errors import user_error
from tests.programs import ended
from tests.root import ROOT

PYTHON = os.environ.get("BEAM_PYTHON", ROOT / ".venv-beam/bin/python")
WORKERS = ("--direct_num_workers", "4", "--direct_running_mode", "multi_processing")
on_beam = pytest.mark.beam


def start(options, directory):
    """Starts a conversion into a directory."""
    flags = [*options.as_flags(but=("output",)), "--output", str(directory), "--engine", "beam"]
    return programs.start(PYTHON, "-m", "components.convert", *flags, "--", *WORKERS)


@on_beam
def test_beam_in_a_bucket(options, expected, busy_bucket):
    ended(start(options, "gs://demo/out"))
    assert read_folder(busy_bucket / "out") == expected


@on_beam
@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_beam_goes_on_after_kills(options, expected, tmp_path, kills):
    chance = random.Random(kills)
    while kills:
        process = start(options, tmp_path / "out")
        time.sleep(chance.uniform(1, 4))
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            main = psutil.Process(process.pid)
            chance.choice([main, main, *main.children(recursive=True)]).kill()
            kills -= 1
        process.communicate()
        if process.returncode == 0:
            assert read_folder(tmp_path / "out") == expected
            shutil.rmtree(tmp_path / "out")
    assert "apache_beam" not in ended(start(options, tmp_path / "out"))
    assert read_folder(tmp_path / "out") == expected


@on_beam
def test_wrong_input_is_one_line(tmp_path):
    flags = kinds.make("images", tmp_path)
    path = tmp_path / "source/b/99.png"
    path.write_bytes(path.read_bytes()[:60])
    options = Options(**flags, output="-", shards=8)
    lines = ended(start(options, tmp_path / "out"), 2).splitlines()
    message = f"error: {path}: broken image (image file is truncated)"
    assert [line for line in lines if "error" in line.lower()] == [message]
    assert not (tmp_path / "out").exists()


def test_other_machines_get_staged_files(tmp_path):
    write_files(tmp_path / "copy", {"train.parquet": "rows"})
    staged = tmp_path / "elsewhere"

    def read(task):
        return (staged / "train.parquet").read_bytes()[task:]

    for i in range(2):
        beam._call(read, staged, tmp_path / "copy", tmp_path / "r", (i, 1))
    assert sorted(path.name for path in tmp_path.glob("r/*")) == ["0", "1"]


def test_flags_of_beam_need_beam(tmp_path):
    with user_error("--runner is for Apache Beam; say --engine beam before"):
        main(["--output", f"{tmp_path}/out", "--", "--runner", "DataflowRunner"])
