"""Asks all hosts of a job at the same time whether and how it can run there.

Synopsis:

    facts = ask({host.name: ssh_line(host, ssh) for host in hosts}, python, {"node1": {"ports": 2, ...}, ...})
    check_versions(facts)
    facts["node1"].ports  # (23456, 12345)
"""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from components.train.backends.hosts import remote_python
from components.train.backends.hosts.probe import PACKAGES, version_of
from trainer.base.errors import UserError

_ANSWER_S = 20.0  # ssh gives a host that does not answer up after 10 s; a program there may be slow to load.
_TENSORFLOW = ("tensorflow-cpu", "tensorflow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What a host says of itself; see `probe`."""

    python: str
    executable: str
    versions: Mapping[str, str]
    cores: int
    gpus: Sequence[str]
    ports: Sequence[int]
    there: Sequence[bool]
    alike: Sequence[str | None]
    rsync: bool


def ask(
    lines: Mapping[str, Sequence[str]], python: str, requests: Mapping[str, Mapping[str, Any]], otherwise: str
) -> dict[str, Facts]:
    """Asks every host, and waits for all.

    Args:
      lines: Of the ssh client, by host.
      python: Of a host.
      requests: To each host, as `probe` has them.
      otherwise: The Python of a host that has no `python`.

    Raises:
      UserError: Naming each host that cannot be reached, and why.
    """

    def one(name: str) -> Facts | str:
        command = [*lines[name], remote_python.on_host(python, otherwise)]
        try:
            done = subprocess.run(
                command, input=remote_python.message("probe.py", requests[name]), capture_output=True, timeout=_ANSWER_S
            )
        except OSError as error:
            return f"cannot start {command[0]}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"no answer within {_ANSWER_S:.0f} s"
        answers = filter(None, map(remote_python.answer, done.stdout.decode("utf-8", "replace").splitlines()))
        if found := next(answers, None):
            return Facts(**found)
        return (done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"])[
            -1
        ].strip()

    with ThreadPoolExecutor(max_workers=min(64, len(lines))) as pool:
        facts = dict(zip(lines, pool.map(one, lines), strict=True))
    if bad := {name: why for name, why in facts.items() if isinstance(why, str)}:
        every = "; ".join(f"{name} ({why})" for name, why in bad.items())
        raise UserError(f"cannot run on {len(bad)} of {len(lines)} hosts: {every}; mend them, or leave them out")
    return facts


def check_versions(facts: Mapping[str, Facts], *, needs_tensorflow: bool) -> list[str]:
    """Compares the hosts' versions with this machine's; returns what is another and may do no harm.

    Raises:
      UserError: If a host has another TensorFlow, or none.
    """
    notes = []
    here = _tensorflow({name: version for name in PACKAGES if (version := version_of(name))})
    for name, each in facts.items():
        there = _tensorflow(each.versions)
        if there != here and (needs_tensorflow or there):
            what = f"TensorFlow {there}" if there else "no TensorFlow"
            raise UserError(
                f"host {name}: {each.executable} has {what}, this machine {here or 'none'}; install the same there, or "
                "name another Python with --remote-python"
            )
        if each.python.split(".")[:2] != platform.python_version().split(".")[:2]:
            notes.append(f"host {name} has Python {each.python}, this machine {platform.python_version()}")
    return notes


def _tensorflow(versions: Mapping[str, str]) -> str | None:
    return next((versions[name] for name in _TENSORFLOW if name in versions), None)
