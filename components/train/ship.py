"""Copies directories to the hosts of a job and back; a process of its own.

    python -m components.train.ship out REQUEST     # code, dataset, and the job directory if there is one
    python -m components.train.ship back REQUEST    # the job directory, from the chief's host to here
    python -m components.train.ship level REQUEST   # the same if there is more, and then to all hosts
    python -m components.train.ship clean REQUEST   # the copied code

REQUEST is JSON: `hosts` (name to ssh command line; the chief's is the first), `rsync` (whether it may be used), `send` (list
of `what`, `from`, `to`, `names`), `job` (`here`, `there`, or null) and `clean` (directories). rsync is used where both sides have it,
and sends only what has changed; tar elsewhere. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_HERE_ONLY = ("launcher.lock", "launcher.jsonl", "replicas", ".incoming-*")
_CHECKPOINT = re.compile(r"ckpt-(\d+)\.index")
_PRUNE = """cd {place}/checkpoints 2>/dev/null || exit 0
kept={kept}; for name in *; do case $kept in *" $name "*) ;; *) rm -rf -- "$name" ;; esac; done"""
_TRY_S, _PAUSE_S = 60.0, 3.0
_NEWEST = "ls {} 2>/dev/null || true"


def out(request: dict[str, Any]) -> None:
    """Sends what the job needs to every host."""
    if job := request["job"]:
        _fetch_if_newer(request, job)

    def one(name: str) -> None:
        for each in request["send"]:
            print(f"{each['what']} to {name}", file=sys.stderr, flush=True)
            _send(request, name, each["from"], each["to"], each["names"])
        if job:
            _send_job(request, name)

    _everywhere(one, request["hosts"])


def back(request: dict[str, Any]) -> None:
    """Fetches the job directory from the chief's host."""
    job = request["job"]
    _fetch(request, next(iter(request["hosts"])), job["there"], job["here"])


def level(request: dict[str, Any]) -> None:
    """Has all hosts, and this machine, hold the checkpoints that the chief's host has; for a minute it tries again."""
    job, give_up, said = request["job"], time.monotonic() + _TRY_S, ""
    while True:
        try:
            _fetch_if_newer(request, job)
            return _everywhere(lambda name: _send_job(request, name), request["hosts"])
        except OSError as error:
            if time.monotonic() > give_up:
                raise OSError(f"{error}; hosts without the newest checkpoints cannot go on") from None
            if not said:
                print(said := f"{error}; trying again for {_TRY_S:.0f} s", file=sys.stderr, flush=True)
            time.sleep(_PAUSE_S)


def clean(request: dict[str, Any]) -> None:
    """Removes the copied code."""
    words = " ".join(map(shlex.quote, request["clean"]))
    _everywhere(lambda name: _on_host(request, name, f"rm -rf -- {words}"), request["hosts"])


def _fetch_if_newer(request: dict[str, Any], job: dict[str, str]) -> None:
    """A launcher that was killed may have left its newest checkpoints on the chief's host."""
    chief = next(iter(request["hosts"]))
    there = _on_host(request, chief, _NEWEST.format(shlex.quote(f"{job['there']}/checkpoints"))).decode().split()
    here = Path(job["here"], "checkpoints")
    if _newest(there) > _newest(os.listdir(here) if here.is_dir() else []):
        print(f"newer checkpoints from {chief}", file=sys.stderr, flush=True)
        _fetch(request, chief, job["there"], job["here"])


def _send_job(request: dict[str, Any], name: str) -> None:
    _send(request, name, request["job"]["here"], request["job"]["there"], ["."], mirror=True)


def _newest(names: Sequence[str]) -> int:
    return max((int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))), default=-1)


def _send(
    request: dict[str, Any], host: str, source: str, target: str, names: Sequence[str], *, mirror: bool = False
) -> None:
    """Copies `names` below `source` into `target` on a host; `mirror`: checkpoints that are not here go there."""
    place = shlex.quote(target)
    prepare = f"mkdir -p -- {place}"
    if mirror:
        here = Path(source, "checkpoints")
        kept = " ".join(os.listdir(here)) if here.is_dir() else ""
        prepare += " && " + _PRUNE.format(place=place, kept=shlex.quote(f" {kept} "))
    _on_host(request, host, prepare)
    if request["rsync"]:
        _rsync(request, host, [f"./{name}" for name in names], f":{target}/", cwd=source, job=mirror)
        return
    unpack = f"tar -xf - -C {place}"
    excluded = [f"--exclude=./{name}" for name in _HERE_ONLY if mirror]
    pack = ["tar", "-cf", "-", "-C", source, "--exclude=__pycache__", *excluded, "--", *(f"./{n}" for n in names)]
    with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as packer:
        _on_host(request, host, unpack, stdin=packer.stdout)
        said = packer.stderr.read()
    if packer.returncode:
        raise OSError(f"tar of {source}: {_last(said)}")


def _fetch(request: dict[str, Any], host: str, source: str, target: str) -> None:
    """Copies a directory of a host here: each file whole or not at all, an index after the data it is of."""
    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=target) as incoming:
        if request["rsync"]:
            _rsync(request, host, [f":{source}/"], incoming, job=True, link=os.path.abspath(target))
        else:
            archive = os.path.join(incoming, "archive")
            with open(archive, "wb") as file:
                _on_host(request, host, f"tar -cf - -C {shlex.quote(source)} .", stdout=file)
            subprocess.run(["tar", "-xf", archive, "-C", incoming], check=True)
            os.unlink(archive)
        root = Path(incoming)
        files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
        for name in files:
            place = Path(target, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(root / name, place)
        kept = {str(name) for name in files}
        # A host that has lost its disk is no reason to lose what is here.
        saved = any(_CHECKPOINT.fullmatch(name.name) for name in files)
        for old in Path(target, "checkpoints").glob("ckpt-*") if saved else ():
            if str(old.relative_to(target)) not in kept:
                shutil.rmtree(old) if old.is_dir() else old.unlink()


def _rsync(
    request: dict[str, Any],
    host: str,
    sources: Sequence[str],
    target: str,
    *,
    job: bool,
    cwd: str | None = None,
    link: str | None = None,
) -> None:
    *ssh, name = request["hosts"][host]
    name = f"[{name}]" if name.count(":") > 1 else name
    words = ["rsync", "--archive", "--exclude=__pycache__", f"--rsh={shlex.join(ssh)}"]
    words += [f"--exclude=/{each}" for each in _HERE_ONLY if job]
    words += [f"--link-dest={link}"] if link else []
    ends = [f"{name}{word}" if word.startswith(":") else word for word in (*sources, target)]
    done = subprocess.run([*words, "--", *ends], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise OSError(f"host {host}: rsync: {_last(done.stderr)}")


def _on_host(
    request: dict[str, Any], host: str, line: str, stdin: Any = subprocess.DEVNULL, stdout: Any = subprocess.PIPE
) -> bytes:
    """Runs a line of shell on a host; returns what it writes."""
    command = [*request["hosts"][host], f"exec sh -c {shlex.quote(line)}"]
    done = subprocess.run(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)
    if done.returncode:
        raise OSError(f"host {host}: {_last(done.stderr)}")
    return done.stdout or b""


def _everywhere(work: Callable[[str], object], hosts: Sequence[str]) -> None:
    with ThreadPoolExecutor(max_workers=min(16, len(hosts) or 1)) as pool:
        list(pool.map(work, hosts))


def _last(text: bytes) -> str:
    return (text.decode("utf-8", "replace").strip().splitlines() or ["no word of why"])[-1]


def main(verb: str, request: dict[str, Any]) -> int:
    """Does one of the above; returns 0, or 1 after a line that says why not."""
    try:
        {"out": out, "back": back, "level": level, "clean": clean}[verb](request)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
