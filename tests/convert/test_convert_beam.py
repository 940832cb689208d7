"""Conversions on Apache Beam, whose environment `make test-beam` makes: the bytes are those of one process here."""

import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import time

import psutil
import pytest
from dataset_files import read_folder
from PIL import Image

from common.errors import UserError
from components.convert import beam
from components.convert.__main__ import main
from components.convert.options import Options

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = os.environ.get("BEAM_PYTHON", ROOT / ".venv-beam/bin/python")
WORKERS = ("--direct_num_workers", "4", "--direct_running_mode", "multi_processing")
on_beam = pytest.mark.beam


def start(
    options: Options, directory: pathlib.Path | str, *arguments: str
) -> subprocess.Popen[str]:
    flags = [
        *options.as_flags(but=("output",)),
        "--output",
        str(directory),
        "--engine",
        "beam",
        "--",
        *arguments,
    ]
    command = [PYTHON, "-m", "components.convert", *flags]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@on_beam
def test_beam_writes_the_same_bytes(options, expected, tmp_path):
    process = start(options, tmp_path / "out", *WORKERS)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert read_folder(tmp_path / "out") == expected
    assert "apache_beam" not in output


@on_beam
def test_beam_in_a_bucket(options, expected, busy_bucket):
    process = start(options, "gs://demo/out", *WORKERS)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert read_folder(busy_bucket / "out") == expected


@on_beam
@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_beam_goes_on_after_kills(options, expected, tmp_path, kills):
    chance = random.Random(kills)
    while True:
        process = start(options, tmp_path / "out", *WORKERS)
        if not kills:
            break
        time.sleep(chance.uniform(1, 4))
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            main = psutil.Process(process.pid)
            chance.choice([main, main, *main.children(recursive=True)]).kill()
            kills -= 1
        process.communicate()
        if process.returncode == 0:
            assert read_folder(tmp_path / "out") == expected
            shutil.rmtree(tmp_path / "out")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert read_folder(tmp_path / "out") == expected


@on_beam
def test_wrong_input_is_one_line(tmp_path):
    for i in range(40):
        path = tmp_path / "images" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 50), i).save(path)
    path.write_bytes(path.read_bytes()[:60])
    options = Options(dataset="images", source=str(tmp_path / "images"), output="-", shards=8)
    process = start(options, tmp_path / "out", *WORKERS)
    output, _ = process.communicate()
    assert process.returncode == 2
    assert [line for line in output.splitlines() if "error" in line.lower()] == [
        f"error: {path}: broken image (image file is truncated)"
    ]
    assert not (tmp_path / "out").exists()


@on_beam
def test_unknown_runner_is_refused(tmp_path):
    output, _ = start(Options(output="-"), tmp_path / "out", "--runner", "Nope").communicate()
    assert output.startswith("error: Apache Beam: Unexpected pipeline runner: Nope")
    assert not (tmp_path / "out").exists()


def test_other_machines_get_staged_files(tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/train.parquet").write_bytes(b"rows")
    staged = tmp_path / "elsewhere"
    for i in range(2):
        beam._call(
            lambda task: (staged / "train.parquet").read_bytes()[task:],
            staged,
            tmp_path / "copy",
            tmp_path / "r",
            (i, 1),
        )
    assert sorted(path.name for path in tmp_path.glob("r/*")) == ["0", "1"]


def test_flags_of_beam_need_beam(tmp_path):
    with pytest.raises(
        UserError, match="--runner is for Apache Beam; say --engine beam before the --"
    ):
        main(["--output", str(tmp_path / "out"), "--", "--runner", "DataflowRunner"])
