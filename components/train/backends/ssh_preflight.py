"""Asks all hosts of a job at the same time whether and how it can run there.

facts = ask({"node1": ["ssh", "node1", on_host("python3")]}, {"ports": 2, "marker": None})
facts["node1"].ports  # (23456, 12345)
"""

import dataclasses
import json
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from common.errors import UserError
from components.train.backends import probe
from components.train.backends.ssh_client import message

_ANSWER_S = 20.0  # ssh gives a host that does not answer up after 10 s; a program there may be slow to load.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """What a host says of itself; see `probe`."""

    executable: str
    tensorflow: str | None
    cores: int
    gpus: Sequence[str]
    ports: Sequence[int]
    sees_marker: bool


def ask(commands: Mapping[str, Sequence[str]], request: Mapping[str, Any]) -> dict[str, Facts]:
    """Returns what `probe` says on every host; `commands` run `on_host` there.

    Raises:
      UserError: Naming all hosts that cannot be reached, each with the reason.
    """

    def ask_one(command: Sequence[str]) -> Facts | str:
        try:
            done = subprocess.run(command, input=message(probe, request), capture_output=True, timeout=_ANSWER_S)
        except OSError as error:
            return str(error)
        except subprocess.TimeoutExpired:
            return f"no answer within {_ANSWER_S:.0f} s"
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            if line.startswith(probe.ANSWER):  # Others are of a login script.
                return Facts(**json.loads(line.removeprefix(probe.ANSWER)))
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"

    with ThreadPoolExecutor(max_workers=min(64, len(commands))) as pool:
        answers = dict(zip(commands, pool.map(ask_one, commands.values()), strict=True))
    if reasons := [f"{name} ({reason})" for name, reason in answers.items() if isinstance(reason, str)]:
        raise UserError(
            f"cannot run on {len(reasons)} of {len(answers)} hosts: {'; '.join(reasons)}; mend them, or leave them out"
        )
    return answers


def check(facts: Mapping[str, Facts], job_dir: str) -> None:
    """Refuses hosts on which our trainer cannot work with this machine's.

    They have another TensorFlow, or do not share the job directory.
    """
    version = probe.tensorflow_version()
    for name, host in facts.items():
        if host.tensorflow != version:
            raise UserError(
                f"host {name}: {host.executable} has TensorFlow {host.tensorflow}, this machine {version}; install the "
                "same there, or name another Python with --remote-python"
            )
        if not host.sees_marker:
            raise UserError(
                f"--job-dir {job_dir} is not the same place on host {name} as here; name a directory that all hosts "
                "share (NFS), or one in a bucket (gs://)"
            )
