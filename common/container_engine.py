"""The container engine of this machine, for the steps of a run and the replicas of a job.

options = security_options(rootless=check_engine("--backend process"))
subprocess.run(["docker", "run", *as_flags(options), image])    # or DockerRunner(**options)
"""

import os
import subprocess
from collections.abc import Mapping
from typing import Any

from common.errors import UserError

DEFAULT_IMAGE = "tfrecord-training:dev"  # The image that `make image` builds.
_ANSWER_S = 20.0


def check_engine(instead: str) -> bool:
    """Checks that the container engine answers.

    Args:
      instead: What the user can do without an engine, such as a flag; the error message names it.

    Returns:
      True if the engine is rootless, that is, runs as this user.

    Raises:
      UserError: If there is no engine, or it does not answer within 20 seconds.
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
    """Returns the security options of every container, as arguments of Docker's Python client.

    A container has no capabilities, can gain none, and has an init process. It runs as this user,
    who is root inside the containers of a rootless engine.
    """
    return {
        "user": "0:0" if rootless else f"{os.getuid()}:{os.getgid()}",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "init": True,
    }


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Returns options of Docker's Python client as flags of `docker run`.

    A list becomes one flag for each item. Any other value is written in lower case.
    """
    values = {
        name: value if isinstance(value, list) else [str(value).lower()]
        for name, value in options.items()
    }
    return [
        f"--{name.replace('_', '-')}={each}" for name, value in values.items() for each in value
    ]


def remove_containers(label: str) -> None:
    """Removes all containers with a label, running or not, and their anonymous volumes.

    Failures of the engine are ignored.

    Args:
      label: `KEY=VALUE`.

    Raises:
      FileNotFoundError: If there is no program `docker`.
    """
    if names := docker("ps", "--all", "--quiet", f"--filter=label={label}").stdout.split():
        docker("rm", "--force", "--volumes", *names)


def docker(*arguments: str, limit_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the engine's command line client and returns the result, whatever its exit code.

    Args:
      *arguments: Arguments of `docker`.
      limit_s: Seconds after which the client is killed; None for no limit.

    Returns:
      The exit code, and stdout and stderr as texts.

    Raises:
      FileNotFoundError: If there is no program `docker`.
      subprocess.TimeoutExpired: If it takes longer than `limit_s`.
    """
    return subprocess.run(
        ["docker", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
