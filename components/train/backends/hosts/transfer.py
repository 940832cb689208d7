"""Copies directories to the hosts of a job and back; a process of its own.

    python -m components.train.backends.hosts.transfer out REQUEST     # code, dataset, and the job directory if there is one
    python -m components.train.backends.hosts.transfer back REQUEST    # the job directory, from the chief's host to here
    python -m components.train.backends.hosts.transfer level REQUEST   # the newest checkpoint, wherever it is, to here and to all hosts
    python -m components.train.backends.hosts.transfer clean REQUEST   # the copied code

REQUEST is JSON, in one argument or several: `hosts` (name to ssh command line; the chief's is the first), `rsync` (whether it may be used), `send` (list
of `what`, `from`, `to`, `names`), `job` (`here`, `there`, or null) and `clean` (directories). rsync is used where both sides have it,
and sends only what has changed; tar elsewhere. Standard library only.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from components.train.backends.hosts import remote_python

_HERE_ONLY = ("launcher.lock", "launcher.jsonl", "replicas", ".incoming-*")
_OF_STEP = re.compile(r"ckpt-(\d+)\D.*")
_SHARD = re.compile(r"ckpt-(\d+)\.data-\d{5}-of-(\d{5})")
_TRY_S, _PAUSE_S = 60.0, 3.0
# What is there and cannot be read, on a disk that is not mounted perhaps, is an error: nobody knows what it holds.
_LIST = "if [ -e {place} ] || [ -L {place} ]; then ls {place}/; fi"


def out(request: dict[str, Any]) -> None:
    """Sends what the job needs to every host."""
    job = request["job"]
    there = _gather(request) if job else {}

    def one(name: str) -> None:
        for each in request["send"]:
            print(f"{each['what']} to {name}", file=sys.stderr, flush=True)
            _send(request, name, each["from"], each["to"], each["names"])
        if job:
            _send(request, name, job["here"], job["there"], ["."], job=True)
            # Afterwards what is older and not here goes; by standard input, as it may be too long for a line.
            if old := _outdated(there[name], _names(Path(job["here"], "checkpoints"))):
                paths = "".join(f"{job['there']}/checkpoints/{each}\0" for each in old)
                _on_host(request, name, "xargs -0 rm -rf --", input=os.fsencode(paths))

    _everywhere(one, request["hosts"])


def back(request: dict[str, Any]) -> None:
    """Fetches the job directory from the chief's host; what that has removed of older checkpoints goes here too."""
    job, chief = request["job"], next(iter(request["hosts"]))
    there = _list(request, chief)
    _fetch(request, chief, job["there"], job["here"])
    here = Path(job["here"], "checkpoints")
    for name in _outdated(_names(here), there):
        old = here / name
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def level(request: dict[str, Any]) -> None:
    """Has all hosts, and this machine, hold the newest checkpoint that any of them has; for a minute it tries again."""
    give_up, said = time.monotonic() + _TRY_S, ""
    while True:
        try:
            return out({**request, "send": []})
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


def _gather(request: dict[str, Any]) -> dict[str, list[str]]:
    """Asks every host for its checkpoints, and fetches the newest complete one if it is not here; what each host has.

    A launcher that was killed may have left the newest on the chief's host, and that may have been another host then.
    """
    job = request["job"]
    there = dict(zip(request["hosts"], _everywhere(lambda name: _list(request, name), request["hosts"]), strict=True))
    newest = max(there, key=lambda name: _newest(there[name]))  # The first of several, so the chief's before others.
    if _newest(there[newest]) > _newest(_names(Path(job["here"], "checkpoints"))):
        print(f"newer checkpoints from {newest}", file=sys.stderr, flush=True)
        _fetch(request, newest, job["there"], job["here"])
    return there


def _list(request: dict[str, Any], host: str) -> list[str]:
    place = shlex.quote(f"{request['job']['there']}/checkpoints")
    return os.fsdecode(_on_host(request, host, _LIST.format(place=place))).splitlines()


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.is_dir() else []


def _newest(names: Sequence[str]) -> int:
    """Step of the newest checkpoint that has its index and all its data, or -1."""
    shards = Counter(match.groups() for name in names if (match := _SHARD.fullmatch(name)))
    whole = [step for (step, number), found in shards.items() if found == int(number) and f"ckpt-{step}.index" in names]
    return max(map(int, whole), default=-1)


def _outdated(names: Sequence[str], source: Sequence[str]) -> list[str]:
    """Files of checkpoints that `source` no longer has; nothing newer than the newest whole one that it has."""
    newest = _newest(source)
    steps = {name: int(match[1]) for name in names if (match := _OF_STEP.fullmatch(name))}
    return [name for name, step in steps.items() if step <= newest and name not in source]


def _send(
    request: dict[str, Any], host: str, source: str, target: str, names: Sequence[str], *, job: bool = False
) -> None:
    """Copies `names` below `source` into `target` on a host; of a `job` without what is the launcher's alone."""
    place = shlex.quote(target)
    _on_host(request, host, f"mkdir -p -- {place}")
    if request["rsync"]:
        _rsync(request, host, *(f"./{name}" for name in names), ":./", here=source, there=target, job=job)
        return
    excluded = [f"--exclude=./{name}" for name in _HERE_ONLY if job]
    # Not by tar's -C, which has a meaning for backslashes.
    pack = ["tar", "-cf", "-", "--exclude=__pycache__", *excluded, "--", *(f"./{n}" for n in names)]
    with subprocess.Popen(pack, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as packer:
        _on_host(request, host, f"cd {place} && tar -xf -", stdin=packer.stdout)
        said = packer.stderr.read()
    if packer.returncode:
        raise OSError(f"tar of {source}: {_last(said)}")


def _fetch(request: dict[str, Any], host: str, source: str, target: str) -> None:
    """Copies a directory of a host here: each file whole or not at all, an index after the data it is of."""
    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".incoming-", dir=target) as incoming:
        if request["rsync"]:
            link = f"--link-dest={os.path.abspath(target)}"
            _rsync(request, host, link, ":./", "./", here=incoming, there=source, job=True)
        else:
            with tempfile.TemporaryFile() as archive:
                _on_host(request, host, f"cd {shlex.quote(source)} && tar -cf - .", stdout=archive)
                archive.seek(0)
                subprocess.run(["tar", "-xf", "-"], cwd=incoming, stdin=archive, check=True)
        root = Path(incoming)
        for name in sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file()):
            place = Path(target, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(root / name, place)


def _rsync(request: dict[str, Any], host: str, *words: str, here: str, there: str, job: bool) -> None:
    """Copies what the words say in the directory `here`; what begins with `:` is in the directory `there` of a host."""
    *ssh, name = request["hosts"][host]
    name = f"[{name}]" if name.count(":") > 1 else name
    # It reads the client's command as no shell does: a quote is doubled. A path on the host would be read by a shell, and
    # then by rsync itself as a pattern; so it runs in the directory.
    rsh = " ".join("'{}'".format(word.replace("'", "''")) for word in ssh)
    inside = shlex.join(["sh", "-c", f'cd {shlex.quote(there)} && exec rsync "$@"', "rsync"])
    command = ["rsync", "--archive", "--exclude=__pycache__", f"--rsh={rsh}", f"--rsync-path={inside}"]
    command += [f"--exclude=/{each}" for each in _HERE_ONLY if job]
    command += [f"{name}{word}" if word.startswith(":") else word for word in words]
    done = subprocess.run(command, cwd=here, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise OSError(f"host {host}: rsync: {_last(done.stderr)}")


def _on_host(request: dict[str, Any], host: str, line: str, **streams: Any) -> bytes:
    """Runs a line of shell on a host, with `stdin`, or `input`, and `stdout` of `subprocess.run`; returns what it writes."""
    command = [*request["hosts"][host], f"exec sh -c {shlex.quote(line)}"]
    given = {"stdout": subprocess.PIPE, **({} if "stdin" in streams else {"input": b""}), **streams}
    done = subprocess.run(command, **given, stderr=subprocess.PIPE)
    if done.returncode:
        raise OSError(f"host {host}: {_last(done.stderr)}")
    return done.stdout or b""


def _everywhere(work: Callable[[str], Any], hosts: Sequence[str]) -> list[Any]:
    with ThreadPoolExecutor(max_workers=min(16, len(hosts) or 1)) as pool:
        return list(pool.map(work, hosts))


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
    sys.exit(main(sys.argv[1], remote_python.from_arguments(sys.argv[2:])))
