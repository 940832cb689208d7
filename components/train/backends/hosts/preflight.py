"""Asks all hosts of a job at the same time whether and how it can run there.

facts = ask({"node1": ["ssh", "node1", remote_python.on_host()]}, {"node1": {"ports": 2, ...}})
check_versions(facts, needs_tensorflow=True)
facts["node1"].ports  # (23456, 12345)
"""

import dataclasses
import platform
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from components.train.backends import probe
from components.train.backends.hosts import remote_python
from trainer.base.errors import UserError

_ANSWER_S = 20.0  # ssh gives a host that does not answer up after 10 s; a program there may be slow to load.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What a host says of itself; see `probe`."""

    python: str
    executable: str
    tensorflow: str | None
    cores: int
    gpus: Sequence[str]
    ports: Sequence[int]
    there: bool
    manifest: str | None
    rsync: bool


def ask(lines: Mapping[str, Sequence[str]], requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Facts]:
    """Asks every host, by the line that runs `remote_python.on_host` there, what `probe` is to tell.

    All that cannot be reached are named in one error, and why.
    """

    def one(name: str) -> Facts | str:
        message = remote_python.message(probe, requests[name])
        try:
            done = subprocess.run(lines[name], input=message, capture_output=True, timeout=_ANSWER_S)
        except OSError as error:
            return f"cannot start {lines[name][0]}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"no answer within {_ANSWER_S:.0f} s"
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            if answer := remote_python.answer(line):
                return Facts(**answer)
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return said[-1].strip() if said else f"exit code {done.returncode}"

    with ThreadPoolExecutor(max_workers=min(64, len(lines))) as pool:
        facts = dict(zip(lines, pool.map(one, lines), strict=True))
    if bad := {name: why for name, why in facts.items() if isinstance(why, str)}:
        every = "; ".join(f"{name} ({why})" for name, why in bad.items())
        raise UserError(f"cannot run on {len(bad)} of {len(lines)} hosts: {every}; mend them, or leave them out")
    return facts


def check_versions(facts: Mapping[str, Facts], *, needs_tensorflow: bool) -> list[str]:
    """Refuses a host that has another TensorFlow than this machine; returns what else is another and may do no harm."""
    notes = []
    here = probe.tensorflow_version()
    for name, each in facts.items():
        if each.tensorflow != here and (needs_tensorflow or each.tensorflow):
            what = f"TensorFlow {each.tensorflow}" if each.tensorflow else "no TensorFlow"
            raise UserError(
                f"host {name}: {each.executable} has {what}, this machine {here or 'none'}; install the same there, or "
                "name another Python with --remote-python"
            )
        if each.python.split(".")[:2] != platform.python_version().split(".")[:2]:
            notes.append(f"host {name} has Python {each.python}, this machine {platform.python_version()}")
    return notes
