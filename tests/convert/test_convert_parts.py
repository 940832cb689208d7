from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import trips
from hypothesis import given
from hypothesis import strategies as st

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.parts import finish, within, write_part
from components.convert.plan import Planned
from components.convert.writing import output
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "components.convert")


@pytest.fixture
def options(tmp_path) -> Options:
    return Options(output=str(tmp_path / "out"), shards=6)


@pytest.fixture(scope="module")
def clean(tmp_path_factory, content) -> dict[str, bytes]:
    """What one command makes."""
    directory = tmp_path_factory.mktemp("clean")
    convert(Options(output=str(directory), shards=6))
    return content(directory)


def write(options: Options, *ranges: str) -> None:
    for text in ranges:
        write_part(options, text)


@given(count=st.integers(1, 40), shards=st.integers(1, 60), data=st.data())
def test_ranges_that_cover_the_training_shards_cover_every_other_split_once(count, shards, data):
    bounds = sorted({0, count, *data.draw(st.lists(st.integers(0, count), max_size=5))})
    ranges = list(itertools.pairwise(bounds))
    for split, shards_of_it in (("test", shards), ("train", count)):
        for i in range(shards_of_it):
            shard = Planned(split=split, position=i, count=shards_of_it, start=0, stop=1)
            ((start, stop),) = (part for part in ranges if within(shard, *part, count))
            assert split == "test" or start <= i < stop


def test_parts_in_any_order_and_overlap_make_the_same_bytes(options, clean, content, fails, capsys):
    out = pathlib.Path(options.output)
    (out / ".converting").mkdir(parents=True)  # what a whole conversion left that was killed
    (out / "train-00001-of-00009.tfrecord").write_text("half")
    write(options, "2:3", "4:6")
    with pytest.raises(UserError, match="no finished dataset"):
        Manifest.load(out)
    line = fails("--output", out, "--shards", 6)
    assert "holds shards that --shard-range wrote; write the others, then --finish, or delete it" in line
    line = fails("--output", out, "--shards", 6, "--finish")
    assert "3 of 9 shards are missing: train-00000-of-00006, train-00001-of-00006, train-00003-of-00006;" in line
    assert line.endswith("write them with --shard-range 0:4, which passes over those that are there\n")
    stamps = {path.name: path.stat().st_mtime_ns for path in (out / ".parts").iterdir()}
    write(options, "0:5")
    assert "3 of them were there" in capsys.readouterr().out
    assert stamps.items() <= {path.name: path.stat().st_mtime_ns for path in (out / ".parts").iterdir()}.items()
    assert finish(options) == Manifest.load(out) and content(out) == clean


def test_parts_of_other_arguments_or_another_source_do_not_mix(tmp_path, options, make_idx, fails):
    write(options, "0:3")
    for step in (("--shard-range", "3:6"), ("--finish",)):
        line = fails("--output", options.output, "--shards", 6, *step, "--split-seed", 1)
        assert "split_seed=0; asked for is dataset=digits split_seed=1" in line
    for name, examples in (("a", 50), ("b", 51)):
        make_idx(tmp_path / name, train=examples)
    flags = ("--dataset", "idx", "--shards", 2, "--output", tmp_path / "idx")
    write(Options(dataset="idx", source=str(tmp_path / "a"), shards=2, output=str(tmp_path / "idx")), "0:1")
    line = fails(*flags, "--source", tmp_path / "b", "--shard-range", "1:2")
    assert line.count("source_sha256=") == 2


def test_a_finished_dataset_is_left_as_it_is(options, clean, content, fails, capsys):
    write(options, "0:6")
    finish(options)
    write(options, "0:2")
    finish(options)
    assert capsys.readouterr().out.count("nothing is changed") == 2
    assert "split_seed=0; asked for" in fails(
        "--output", options.output, "--shards", 6, "--shard-range", "0:2", "--split-seed", 1
    )
    assert content(pathlib.Path(options.output)) == clean


def test_finishing_that_was_interrupted_goes_on(options, clean, content, monkeypatch):
    write(options, "0:6")
    out = pathlib.Path(options.output)

    def full(manifest, directory):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Manifest, "save", full)
        with pytest.raises(UserError, match="No space left"):
            finish(options)
    assert (out / "train-00000-of-00006.tfrecord").exists() and (out / ".parts").is_dir()
    (out / "manifest.json.123.tmp").write_text("half")
    finish(options)
    assert content(out) == clean


def test_a_failure_leaves_finished_shards_and_nothing_else(options, third_fails, clean, content):
    third_fails(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write(options, "0:6")
    names = {path.name for path in (pathlib.Path(options.output) / ".parts").iterdir()}
    assert names == {f"train-0000{i}-of-00006.{end}" for i in (0, 1) for end in ("tfrecord", "json")}
    write(options, "0:6")
    finish(options)
    assert content(pathlib.Path(options.output)) == clean


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        *(
            ((f"--shard-range={text}",), f"--shard-range {text}: must be START:STOP of the 6 shards, from 0:1 to 0:6")
            for text in ("", "1", "1:", "1:1", "0:7", "-1:2", "0:3:4")
        ),
        (("--shards", 2000, "--shard-range", "0:1000"), "--shards 2000"),
        (("--shard-range", "0:1", "--finish"), "not allowed with argument"),
        (("--finish",), "no shards are there"),
    ],
)
def test_a_failure_before_the_first_shard_leaves_nothing(tmp_path, fails, flags, message):
    assert message in fails("--output", tmp_path / "a" / "b", "--shards", 6, *flags)
    assert not list(tmp_path.iterdir())


def test_parts_may_be_written_together_but_not_beside_a_whole_conversion(options, fails, monkeypatch):
    monkeypatch.setattr(output, "_LOCK_WAIT_S", 0.1)
    out = pathlib.Path(options.output)
    with output.claim(out, shared=True):
        write(options, "0:6")
        assert "another conversion" in fails("--output", out, "--shards", 6, "--finish")
    finish(options)
    with output.claim(out):
        assert "another conversion" in fails("--output", out, "--shards", 6, "--shard-range", "0:2")


def test_a_table_in_parts_is_the_same_with_its_indexes(tmp_path, content):
    flags = trips.write(tmp_path, trips.rows(200))
    convert(Options(**flags, output=str(tmp_path / "whole"), shards=4))
    parts = Options(**flags, output=str(tmp_path / "parts"), shards=4)
    write(parts, "2:4", "0:2")
    index = tmp_path / "parts" / ".parts" / "train-00003-of-00004.index"
    good = index.read_bytes()
    index.write_bytes(bytes(len(good)))
    with pytest.raises(UserError, match="or its index is damaged"):
        finish(parts)
    write(parts, "3:4")
    assert index.read_bytes() == good
    finish(parts)
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_several_commands_at_once_killed_at_random_moments_and_repeated(tmp_path, make_idx, content, seed):
    make_idx(tmp_path / "source", size=(28, 28), packed=False, train=60_000)
    options = Options(dataset="idx", source=str(tmp_path / "source"), output=str(tmp_path / "clean"), shards=60)
    convert(options)
    out, chance = tmp_path / "out", random.Random(seed)
    flags = ("--dataset", "idx", "--source", str(tmp_path / "source"), "--shards", "60", "--output", str(out))
    ranges = ("0:35", "25:60")
    for attempt in range(3):
        started = [
            subprocess.Popen([*COMMAND, *flags, "--processes", "2", "--shard-range", r], cwd=ROOT) for r in ranges
        ]
        if attempt < 2:
            time.sleep(chance.uniform(0.2, 1.5))
            for process in started:
                process.send_signal(signal.SIGKILL)
        codes = [process.wait() for process in started]
        with pytest.raises(UserError):
            Manifest.load(out)
    assert codes == [0, 0]
    finish(dataclasses.replace(options, output=str(out)))
    assert content(out) == content(tmp_path / "clean")
    assert not [name for name in os.listdir(out) if name.startswith(".")]
