import contextlib
import dataclasses
import errno
import os
import pkgutil
import shutil
import signal
import time

import pytest
from dataset_files import convert_to, make_idx, read_folder

from common.manifest import FILE
from components.convert import convert as convert_module
from components.convert import output
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.arrays import IdxSource
from tests.errors import user_error
from tests.programs import ended, start_python


@pytest.fixture
def idx(tmp_path):
    """Options of a conversion of 90 images in 5 pieces, by one process."""
    make_idx(tmp_path / "source", packed=False, train=90)
    place = {"source": f"{tmp_path}/source", "output": f"{tmp_path}/out"}
    return Options(dataset="idx", **place, shards=5, processes=1)


def _convert(monkeypatch, options, pieces=99):
    """Converts, interrupted after so many pieces; returns how many have been written."""
    write_piece, written = convert_module.write_piece, []

    def write(*args):
        if len(written) == pieces:
            raise KeyboardInterrupt
        written.append(1)
        return write_piece(*args)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(convert_module, "write_piece", write)
        if pieces == 5:
            patched.setattr(output, "publish", write)
        convert(options)
    return len(written)


@pytest.fixture
def assert_finishes(idx, tmp_path, monkeypatch):
    """Converts, which has to write so many pieces, and to leave the files of one that begins."""

    def finish(num_pieces, options=idx):
        assert _convert(monkeypatch, options) == num_pieces
        convert(dataclasses.replace(options, output=f"{tmp_path}/clean"))
        assert read_folder(tmp_path / "out") == read_folder(tmp_path / "clean")

    return finish


def _flip_unseen(path):
    """Changes a file whose size and time of the last change stay."""
    data, status = path.read_bytes(), path.stat()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_convert_again_changes_nothing(idx, tmp_path, capsys, fails):
    def stamps():
        return {str(path): path.stat().st_mtime_ns for path in tmp_path.glob("out/**/*")}

    manifest, before = convert(idx), stamps()
    assert convert(idx) == manifest and stamps() == before
    assert "already there, nothing is changed: 90 examples" in capsys.readouterr().out
    line = fails("--output", tmp_path / "out", "--split-seed", 3)
    assert "made with another dataset, shards, split_seed;" in line
    _flip_unseen(tmp_path / "source/train-images-idx3-ubyte")
    with user_error("made with another source or schema;"):
        convert(idx)
    assert stamps() == before


def test_changed_metadata_are_no_other_source(idx, monkeypatch):
    manifest, files = convert(idx), IdxSource.files

    def touched(source, paths):
        return [dataclasses.replace(file, updated_s=1.0) for file in files(source, paths)]

    monkeypatch.setattr(IdxSource, "files", touched)
    assert convert(idx) == manifest


def test_lost_manifest_is_named(tmp_path, fails):
    convert_to(tmp_path)
    (tmp_path / FILE).unlink()
    assert "'dataset.html', whose manifest is gone" in fails("--output", tmp_path)


def test_convert_again_refuses_damaged_shard(idx, tmp_path):
    convert(idx)
    _flip_unseen(tmp_path / "out/train-00001.tfrecord")
    with user_error(r"train-00001\.tfrecord is missing or damaged"):
        convert(idx)


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "train-00000.tfrecord"])
def test_foreign_files_are_kept(tmp_path, fails, name):
    """A foreign file is kept even beside leftovers of ours; without these no file is ours."""
    (tmp_path / name).write_text("precious")
    assert repr(name) in fails("--output", tmp_path)
    if name != "train-00000.tfrecord":
        (tmp_path / ".converting").mkdir()
        assert repr(name) in fails("--output", tmp_path)
    assert (tmp_path / name).read_text() == "precious"


def test_second_conversion_is_refused(tmp_path, fails):
    with output.claim(f"{tmp_path}/out"):
        assert "another conversion is writing to" in fails("--output", tmp_path / "out")


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("name", ["shards.ShardWriter.close", "output.write_text"])
def test_full_disk_leaves_nothing(tmp_path, monkeypatch, exists, name):
    out = tmp_path / "new/out"
    if exists:
        out.mkdir(parents=True)
    name = f"components.convert.{name}"
    do = pkgutil.resolve_name(name)

    def fail(*args, **kwargs):
        do(*args, **kwargs)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(name, fail)
    with user_error(f"cannot write --output {out}: No space left on device"):
        convert_to(out)
    assert list(tmp_path.rglob("*")) == ([out.parent, out] if exists else [])


def test_small_disk_is_refused(idx, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=0))
    with user_error(r"needs about (?!0)[\d,]+ bytes more"):
        convert(idx)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pieces", [0, 2, 5])
def test_stopped_conversion_goes_on(idx, monkeypatch, assert_finishes, pieces):
    assert _convert(monkeypatch, idx, pieces) == pieces
    assert_finishes(5 - pieces)


@pytest.mark.parametrize(
    ("name", "num_pieces"),
    [
        ("train-00001.tfrecord", 3),
        (".converting/piece-00001.json", 3),
        (".converting/plan.sha256", 5),
    ],
)
def test_damaged_work_is_repeated(idx, tmp_path, monkeypatch, assert_finishes, name, num_pieces):
    _convert(monkeypatch, idx, 3)
    os.truncate(tmp_path / "out" / name, 99)
    assert_finishes(num_pieces)


@pytest.mark.parametrize("change", ["source", "bytes", "options"])
def test_work_of_other_plan_is_discarded(idx, tmp_path, monkeypatch, assert_finishes, change):
    _convert(monkeypatch, idx, 3)
    if change == "source":
        make_idx(tmp_path / "source", packed=False, train=91)
    elif change == "bytes":
        _flip_unseen(tmp_path / "source/train-images-idx3-ubyte")
    else:
        idx = dataclasses.replace(idx, split_seed=1)
    assert_finishes(5, idx)


def test_shard_deleted_from_bucket_is_named(bucket, monkeypatch):
    def discard(*args):
        output.discard("gs://demo/out")

    monkeypatch.setattr(convert_module, "print_warnings", discard)
    with user_error(r"\d+\.\w+ is missing or damaged"):
        convert(Options(output="gs://demo/out", processes=1))
    assert not [*bucket.rglob("*.tfrecord")]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)],
)
def test_signal_decides_exit_code(tmp_path, number, code):
    make_idx(tmp_path / "source", size=(28, 28), packed=False, train=20_000)
    flags = f"--dataset idx --source {tmp_path}/source --output {tmp_path}/out --shards 400"
    process = start_python("-m", "components.convert", "--processes=2", *flags.split())
    while not list(tmp_path.glob("out/*.tfrecord")) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(number)
    ended(process, code)
    assert (tmp_path / "out/.converting/plan.sha256").exists()
