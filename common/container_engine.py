"""The container engine of this machine, for the steps of a run and the replicas of a job.

options = security_options(rootless=check_engine("--backend process"))
subprocess.run(["docker", "run", *as_flags(options), image])    # or kfp's DockerRunner(**options)
"""

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from common.errors import UserError

DEFAULT_IMAGE = "tfrecord-training:dev"  # what "make image" builds
_ANSWER_S = 20.0


def check_engine(instead: str) -> bool:
    """Returns whether the engine is rootless, that is, runs as this user.

    Raises:
      UserError: If no engine answers; it names the flag to use `instead`.
    """
    try:
        info = docker(
            "info", "--format", "{{.ServerVersion}} {{json .SecurityOptions}}", limit_s=_ANSWER_S
        )
    except FileNotFoundError:
        reason = "there is no program docker"
    except subprocess.TimeoutExpired:
        reason = f"no answer within {_ANSWER_S:.0f} s"
    else:
        if not info.returncode and info.stdout.strip():
            return "name=rootless" in info.stdout
        reason = (info.stderr.strip().splitlines() or ["it does not answer"])[-1]
    raise UserError(f"no container engine: {reason}; start Docker, or use {instead}")


def security_options(*, rootless: bool) -> dict[str, Any]:
    """Returns what every container of ours is started with, as arguments of Docker's Python client.

    It has no capabilities, can gain none, and runs as this user, who is root in containers of a
    rootless engine.
    """
    return {
        "user": "0:0" if rootless else f"{os.getuid()}:{os.getgid()}",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "init": True,
    }


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Returns the same as flags of `docker run`."""
    values = {
        name: value if isinstance(value, list) else [str(value).lower()]
        for name, value in options.items()
    }
    return [
        f"--{name.replace('_', '-')}={each}" for name, value in values.items() for each in value
    ]


def remove_containers(label: str) -> None:
    """Removes all containers with a label, `KEY=VALUE`, whether they run or not."""
    if names := docker("ps", "--all", "--quiet", f"--filter=label={label}").stdout.split():
        docker("rm", "--force", "--volumes", *names)


def docker(*arguments: str, limit_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Has the engine's client do something."""
    return subprocess.run(
        ["docker", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
