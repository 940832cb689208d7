"""Copies to hosts and back, with a stand-in for ssh and the real tar, and rsync where it is installed."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from train_clients import Clients

from components.train.backends.hosts import transfer
from components.train.backends.hosts.transfer import back, clean, level, out

pytestmark = pytest.mark.cluster

NO_RSYNC = pytest.mark.skipif(not shutil.which("rsync"), reason="rsync is not installed")


@pytest.fixture(params=["tar", pytest.param("rsync", marks=NO_RSYNC)])
def request_(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    clients = Clients.install(tmp_path)
    ssh = str(clients.path / "ssh")
    (tmp_path / "code" / "pkg").mkdir(parents=True)
    (tmp_path / "code" / "pkg" / "a b.py").write_text("1")
    (tmp_path / "code" / "other").write_text("no")
    there = tmp_path / "on host's disk"
    return {
        "hosts": {"one": [ssh, "-T", "one"], "two": [ssh, "-T", "two"]},
        "rsync": request.param == "rsync",
        "send": [{"what": "code", "from": str(tmp_path / "code"), "to": str(there / "code"), "names": ["pkg"]}],
        "job": {"here": str(tmp_path / "job"), "there": str(there / "job")},
        "clean": [str(there / "code")],
    }


def checkpoint(directory: str, step: int) -> None:
    path = Path(directory, "checkpoints")
    path.mkdir(parents=True, exist_ok=True)
    for end in ("index", "data-00000-of-00001"):
        (path / f"ckpt-{step}.{end}").write_text(str(step))


def steps(directory: str) -> list[str]:
    return sorted(path.stem for path in Path(directory, "checkpoints").glob("*.index"))


def test_code_and_job_go_out_and_the_job_comes_back_without_what_is_the_launchers_or_old(request_: dict[str, Any]):
    here, there = Path(request_["job"]["here"]), Path(request_["job"]["there"])
    for step in (100, 200):
        checkpoint(str(here), step)
    (here / "launcher.jsonl").write_text("mine")
    (here / "replicas").mkdir()
    checkpoint(str(there), 50)
    (there / "journal-worker-0-0.jsonl").write_text("kept")
    out(request_)
    code = Path(request_["clean"][0])
    assert [str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()] == ["pkg/a b.py"]
    assert steps(str(there)) == ["ckpt-100", "ckpt-200"]
    assert sorted(path.name for path in there.iterdir()) == ["checkpoints", "journal-worker-0-0.jsonl"]
    shutil.rmtree(there / "checkpoints")
    checkpoint(str(there), 300)
    (there / "model").mkdir()
    (there / "model" / "saved_model.pb").write_text("m")
    back(request_)
    assert steps(str(here)) == ["ckpt-300"]
    assert (here / "model" / "saved_model.pb").read_text() == "m"
    assert (here / "launcher.jsonl").read_text() == "mine"
    assert not list(here.glob(".incoming*"))
    clean(request_)
    assert not code.exists() and code.parent.exists()


def test_levelling_is_tried_again_until_a_host_is_back(
    request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    monkeypatch.setattr(transfer, "_PAUSE_S", 0.01)
    here, ssh = Path(request_["job"]["here"]), request_["hosts"]["two"][0]
    here.mkdir()
    reboots = here.with_name("reboots")
    reboots.write_text(
        f"#!/bin/sh\necho >> '{here}.calls'; [ $(wc -l < '{here}.calls') -gt 2 ] || exit 255\nexec {ssh} \"$@\""
    )
    reboots.chmod(0o755)
    request_["hosts"]["two"][0] = str(reboots)
    level(request_)
    assert capfd.readouterr().err == "host two: no word of why; trying again for 60 s\n"


NAMES = st.text("ab1 '\"$`\\\\*?[]-:;&|#~!(){}<>=é@,\n", min_size=1, max_size=8)


@pytest.mark.parametrize("rsync", [False, pytest.param(True, marks=NO_RSYNC)])
@settings(max_examples=15, deadline=None)
@given(names=st.tuples(NAMES, NAMES, NAMES, NAMES))
@example(names=("it's $HOME", '-a "b"', "[ab]", "-rf *"))
@example(names=("a:b", "job[1]", "x;touch y", "'"))
def test_paths_may_hold_whatever_a_shell_or_rsync_gives_a_meaning_to(rsync: bool, names: tuple[str, ...]):
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RSYNC_OLD_ARGS", "1")  # As those of before 3.2.4 are, which protect nothing by themselves.
        client, job, root, file = (f"{name}-" for name in names)
        assume("a-" not in (client, root))  # The decoy is there.
        (path := Path(place, client)).mkdir()
        (ssh := Clients.install(path).path / "ssh").rename(ssh := path / "my ssh's")
        here, there = str(path / job), f"{place}/{root}/{job}"
        (decoy := Path(place, "a-", job)).mkdir(parents=True)
        (decoy / "decoy").touch()
        request = {"hosts": {"one": [str(ssh), "-T", "one"]}, "rsync": rsync, "clean": [f"{place}/{root}"]}
        request |= {"send": [], "job": {"here": here, "there": there}}
        checkpoint(here, 100)
        Path(here, file).write_text("sent")
        out(request)
        assert Path(there, file).read_text() == "sent" and steps(there) == ["ckpt-100"]
        checkpoint(there, 200)
        Path(there, file).write_text("fetched")
        back(request)
        assert Path(here, file).read_text() == "fetched" and steps(here) == ["ckpt-100", "ckpt-200"]
        assert "decoy" not in os.listdir(here)
        clean(request)
        assert not Path(place, root).exists()


def test_more_old_checkpoints_than_fit_into_a_line_are_removed(request_: dict[str, Any]):
    here, there = request_["job"]["here"], request_["job"]["there"]
    checkpoint(here, 9000)
    checkpoint(there, 1)
    for step in range(2, 1500):
        Path(there, "checkpoints", f"ckpt-{step}.{'x' * 100}").touch()
    out(request_)
    assert steps(there) == ["ckpt-9000"] and len(os.listdir(Path(there, "checkpoints"))) == 2


STEPS = st.sets(st.integers(1, 5), max_size=4)


class Disks:
    """Hosts with a disk each, on which `/disk` is the host's own directory."""

    def __init__(self, path: Path, *, rsync: bool):
        self.path = path
        ssh = path / "ssh"
        swap = f'line=$(printf %s "$*" | sed "s|/disk|{path}/$host|g")'
        ssh.write_text(
            f'#!/bin/sh\nhost=$1; shift\n[ ! -e "{path}/$host/off" ] || exit 255\n{swap}\nexec sh -c "$line"'
        )
        ssh.chmod(0o755)
        self.here = path / "here"
        self.request = {
            "hosts": {name: [str(ssh), name] for name in ("one", "two", "three")},
            "rsync": rsync,
            "send": [],
            "job": {"here": str(self.here), "there": "/disk/job"},
        }

    def job(self, name: str) -> Path:
        return self.here if name == "here" else self.path / name / "job"

    def whole(self, name: str) -> set[int]:
        files = self.job(name) / "checkpoints"
        return {int(path.stem[5:]) for path in files.glob("*.index") if list(files.glob(f"{path.stem}.data-*"))}


@pytest.mark.parametrize("rsync", [False, pytest.param(True, marks=NO_RSYNC)])
@settings(max_examples=10, deadline=None)
@given(
    whole=st.tuples(STEPS, STEPS, STEPS, STEPS),
    torn=st.tuples(STEPS, STEPS, STEPS, STEPS),
    off=st.sampled_from((*[None] * 3, "two")),
)
def test_newest_whole_checkpoint_of_any_host_is_everywhere_afterwards_and_nothing_newer_is_lost(
    rsync: bool, whole: tuple[set[int], ...], torn: tuple[set[int], ...], off: str | None
):
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "_TRY_S", 0.0)
        disks = Disks(Path(path), rsync=rsync)
        names = ("here", *disks.request["hosts"])
        for name, steps_, halves in zip(names, whole, torn, strict=True):
            for step in steps_ | halves:
                checkpoint(str(disks.job(name)), step)
            for step in halves - steps_:
                for data in disks.job(name).glob(f"checkpoints/ckpt-{step}.data*"):
                    data.unlink()
            disks.job(name).mkdir(parents=True, exist_ok=True)
        files = {name: set(disks.job(name).rglob("ckpt-*")) for name in names}
        if off:
            (disks.path / off / "off").touch()
            with pytest.raises(OSError, match=r"host two: .*; hosts without the newest checkpoints cannot go on"):
                level(disks.request)
            assert {name: set(disks.job(name).rglob("ckpt-*")) for name in names} == files
            return
        level(disks.request)
        newest = max(set().union(*whole), default=0)
        for name in names:
            newer = {path for path in files[name] if int(path.name[5:].split(".")[0]) > newest}
            assert newer <= set(disks.job(name).rglob("ckpt-*"))
            assert not newest or newest == max(disks.whole(name))
        assert disks.whole("here") >= whole[0]


@pytest.mark.parametrize(("there_has", "left"), [(250, ["ckpt-250", "ckpt-300"]), (350, ["ckpt-350"]), (None, None)])
def test_what_is_newer_here_than_on_the_chiefs_host_stays(request_: dict[str, Any], there_has: int | None, left: list):
    here, there = request_["job"]["here"], request_["job"]["there"]
    for step in (100, 200, 300):
        checkpoint(here, step)
    Path(there).mkdir(parents=True)
    if there_has:  # Else that host has lost its disk.
        checkpoint(there, there_has)
    back(request_)
    assert steps(here) == (left or ["ckpt-100", "ckpt-200", "ckpt-300"])


def test_host_whose_checkpoints_cannot_be_listed_is_an_error_and_loses_nothing(request_: dict[str, Any]):
    there = Path(request_["job"]["there"])
    there.mkdir(parents=True)
    (there / "checkpoints").symlink_to("unmounted")
    checkpoint(request_["job"]["here"], 100)
    with pytest.raises(OSError, match=r"host (one|two): "):
        out(request_)
