import dataclasses
import errno
import pathlib
import pkgutil
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from unittest import mock

import psutil
import pytest

from common.errors import UserError
from common.storage import files
from components.convert import stages
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.writing import output, parts
from tests.cloud import objects

ROOT = pathlib.Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "components.convert")


def _stamps(directory: pathlib.Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in [directory, *directory.iterdir()]}


def test_done_again_writes_nothing_and_finds_what_changed(tmp_path, make_idx, idx_bytes, monkeypatch, capsys, fails):
    source = tmp_path / "source"
    images, _ = make_idx(source, packed=False, train=40)["train"]
    options = Options(dataset="idx", source=str(source), output=str(tmp_path / "out"))
    made, before = convert(options), _stamps(tmp_path / "out")
    monkeypatch.setattr(parts, "join", None)
    assert convert(options) == made and _stamps(tmp_path / "out") == before
    assert "already there" in capsys.readouterr().out
    line = fails("--output", tmp_path / "out", "--dataset", "digits", "--split-seed", 3)
    assert "dataset=idx" in line and "dataset=digits" in line and "split_seed=0" in line and "split_seed=3" in line
    images[17, 3, 2] ^= 1
    (source / "train-images-idx3-ubyte").write_bytes(idx_bytes(images))
    with pytest.raises(UserError, match=r"holds another dataset .*fingerprint="):
        convert(options)
    assert _stamps(tmp_path / "out") == before


def test_a_page_that_was_deleted_is_made_again_and_nothing_else(tmp_path, capsys):
    options = Options(output=str(tmp_path / "out"))
    convert(options)
    page = tmp_path / "out" / output.PAGE
    before, text = _stamps(tmp_path / "out"), page.read_text()
    page.unlink()
    convert(options)
    assert page.read_text() == text and "dataset.html, which is made again" in capsys.readouterr().out
    changed = {name for name, stamp in _stamps(tmp_path / "out").items() if before[name] != stamp}
    assert changed == {"out", output.PAGE}


@pytest.mark.parametrize("name", ["notes.txt", "train-00000-of-00001.tfrecord", "dataset.html", ".hidden"])
def test_files_of_others_are_neither_deleted_nor_joined(tmp_path, fails, name):
    (tmp_path / name).write_text("precious")
    assert repr(name) in fails("--output", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / ".converting").mkdir()  # even beside leftovers of ours
    if name in ("notes.txt", ".hidden"):
        assert repr(name) in fails("--output", tmp_path)
        assert (tmp_path / name).read_text() == "precious"


def test_a_second_conversion_into_a_directory_is_refused(tmp_path, fails, monkeypatch):
    monkeypatch.setattr(output, "_LOCK_WAIT_S", 0.1)
    with output.claim(str(tmp_path / "out")):
        assert "another conversion is writing to" in fails("--output", tmp_path / "out")


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("place", ["parts.Writer.close", "notes.write_text"])
def test_a_disk_that_is_full_leaves_nothing(tmp_path, monkeypatch, before, place):
    out = tmp_path / "new" / "out"
    if before:
        out.mkdir(parents=True)
    name = f"components.convert.writing.{place}"
    do = pkgutil.resolve_name(name)

    def fails(*args, **kwargs):
        do(*args, **kwargs)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(name, fails)
    with pytest.raises(UserError, match=f"cannot write --output {out}: No space left on device"):
        convert(Options(output=str(out)))
    assert list(tmp_path.rglob("*")) == ([out.parent, out] if before else [])


@pytest.mark.parametrize("stage", ["write", "merge"])
def test_what_is_done_when_a_conversion_is_stopped_is_not_done_again(tmp_path, monkeypatch, make_idx, content, stage):
    make_idx(tmp_path / "source", packed=False, train=90)
    clean = Options(dataset="idx", source=str(tmp_path / "source"), output=str(tmp_path / "clean"), shards=5)
    convert(clean)
    options, written = dataclasses.replace(clean, output=str(tmp_path / "out"), processes=1), []
    with monkeypatch.context() as patched:
        done, times = getattr(stages.Work, stage), []

        def stopped(work, i, *args):
            times.append(1)
            if len(times) == (3 if stage == "write" else 1):
                raise KeyboardInterrupt
            return done(work, i, *args)

        patched.setattr(stages.Work, stage, stopped)
        with pytest.raises(KeyboardInterrupt):
            convert(options)
    write = stages.Work.write
    monkeypatch.setattr(stages.Work, "write", lambda work, i, *args: written.append(i) or write(work, i, *args))
    convert(options)
    assert content(tmp_path / "out") == content(tmp_path / "clean")
    assert written == ([2, 3, 4] if stage == "write" else [])


def test_work_on_another_source_is_not_gone_on_with(tmp_path, monkeypatch, make_idx, content):
    make_idx(tmp_path / "source", packed=False, train=90)
    options = Options(dataset="idx", source=str(tmp_path / "source"), output=str(tmp_path / "out"), processes=1)
    with monkeypatch.context() as patched:
        patched.setattr(stages.Work, "merge", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            convert(options)
    make_idx(tmp_path / "source", packed=False, train=91)
    convert(options)
    convert(dataclasses.replace(options, output=str(tmp_path / "clean")))
    assert content(tmp_path / "out") == content(tmp_path / "clean")


@pytest.mark.parametrize("out", ["here", "gs://demo/out"])
def test_work_that_was_deleted_by_half_is_not_gone_on_with(tmp_path, monkeypatch, bucket, content, out):
    whole = Options(output=str(tmp_path / out) if out == "here" else out, shards=3, processes=1)

    def interrupted(owner: object, name: str, do: Callable, options: Options) -> None:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(owner, name, do)
            convert(options)

    def most(paths: Iterable[str]) -> None:
        paths = [*paths]
        parts = [path for path in paths if "/notes/" not in path]
        files.delete_files(parts or paths)
        if parts:
            raise KeyboardInterrupt

    monkeypatch.setattr(objects, "_WRITE_S", 0)
    interrupted(stages.Work, "merge", mock.Mock(side_effect=KeyboardInterrupt), whole)
    interrupted(output, "delete_files", most, dataclasses.replace(whole, split_seed=1))
    convert(whole)
    made = bucket / "out" if "://" in out else tmp_path / out
    convert(dataclasses.replace(whole, output=str(tmp_path / "clean")))
    assert content(made) == content(tmp_path / "clean")


@pytest.fixture(scope="module")
def large(tmp_path_factory, make_idx):
    """A source whose conversion takes long enough to be interrupted, and its result."""
    root = tmp_path_factory.mktemp("large")
    make_idx(root / "source", size=(28, 28), packed=False, train=20_000)
    flags = ("--dataset", "idx", "--source", str(root / "source"), "--shards", "400")
    convert(Options(dataset="idx", source=str(root / "source"), output=str(root / "clean"), shards=400))
    yield flags, root / "clean"
    shutil.rmtree(root)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("which", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_being_stopped_leaves_no_process_and_is_gone_on_with(tmp_path, large, content, which, code):
    flags, clean = large
    process = _start(flags, tmp_path / "out", 2)
    _wait_for(tmp_path / "out", ".converting", 1, process)
    workers = psutil.Process(process.pid).children()
    process.send_signal(which)
    assert process.wait(60) == code and (tmp_path / "out" / ".converting" / "notes" / "plan.json").exists()
    assert not psutil.wait_procs(workers, timeout=20)[1]
    subprocess.run([*COMMAND, *flags, "--output", tmp_path / "out"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert content(tmp_path / "out") == content(clean)


def _start(flags: tuple[str, ...], out: pathlib.Path, processes: int, **options) -> subprocess.Popen:
    command = [*COMMAND, *flags, "--output", str(out), "--processes", str(processes)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, **options)


def _wait_for(out: pathlib.Path, place: str, files: int, process: subprocess.Popen) -> None:
    """Until so many shards, or parts of them, are in a directory in there."""
    deadline = time.monotonic() + 60
    while len(list(out.glob(f"{place}/*.tfrecord"))) < files and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.001)
