"""The docker back end: one container per replica, on this machine, in a network of its own.

Synopsis:

    engine = engine_for("tfrecord-training:dev")
    plan = plan_containers(cluster, program, image="tfrecord-training:dev", engine=engine, mounts=mounts,
                           log_dir="jobs/a/replicas", division=division)
    exit_code = supervisor.run(plan)

Every container sees the job's directories at the paths that they have here, its own in the same working directory, and
nothing else of this machine. Replicas reach each other as `worker-1:2222`; no port is published.
A container that is paused (SIGSTOP) is found frozen by its silence alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from components.train.backends import engine_client
from components.train.backends.environment import job_plan, members, replica_env
from components.train.backends.heeded import ignored_by
from components.train.backends.plan import ATTEMPT, DEFAULT_IMAGE, Plan, Replica
from components.train.backends.program import Program
from components.train.backends.resources import Division
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError

__doc__ = f"{__doc__}\n{ignored_by('docker')}"

_PORT = 2222
_CLIENT = (sys.executable, "-P", "-S", engine_client.__file__)
_PREPARE = (sys.executable, "-m", "components.train.backends.engine_client", "prepare")
_ENGINE_S = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory of this machine that containers see at the same path."""

    path: str
    writable: bool


def plan_containers(
    cluster: Cluster,
    program: Program,
    *,
    image: str,
    mounts: Sequence[Mount],
    log_dir: str,
    division: Division,
    rootless: bool = False,
    memory_gb: float | None = None,
) -> Plan:
    """Plans one container per replica, all running the same command and told apart by `TF_CONFIG`.

    Args:
      cluster: What to run on.
      program: What to run.
      image: That has the program, or at least what it needs.
      mounts: What containers see of this machine, beside the job directory (if it is here) and `log_dir`.
      log_dir: Directory of log and status files.
      division: Of cores and GPUs.
      rootless: Whether the engine runs as this user; root inside is then this user outside.
      memory_gb: That each container may use.
    """
    place = program.job_dir if "://" in program.job_dir else os.path.realpath(program.job_dir)
    network = network_name(place)
    addresses = {role: [f"{role}-{i}:{_PORT}" for i in indices] for role, indices in members(cluster).items()}
    here = [program.job_dir, log_dir] if "://" not in program.job_dir else [log_dir]
    shared = [
        *("docker", "run", "--init", "--log-driver", "none", "--network", network),
        *("--label", f"{engine_client.LABEL}={network}", "--label", f"{engine_client.JOB}={place}"),
        *("--workdir", os.getcwd()),
        *(word for mount in _distinct([*(Mount(path=p, writable=True) for p in here), *mounts]) for word in mount),
    ]
    if not rootless:
        shared += ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]
    if memory_gb:
        shared += ["--memory", f"{memory_gb * 2**30:.0f}", "--memory-swap", f"{memory_gb * 2**30:.0f}"]
    # What the launcher takes for Python is a path of this machine.
    program_line = ["python" if word == sys.executable else word for word in program.command]
    replicas = []
    for role, pool in cluster.pools.items():
        for index in range(pool.replicas):
            stem, name = f"{log_dir}/{role}-{index}", f"{network}-{role}-{index}"
            status = f"{os.path.abspath(stem)}.status.json"
            env = replica_env(cluster, program, role, index, addresses=addresses, status=status)
            env["TRAINER_THREADS"] = str(division.threads)
            own = ["--name", name, "--hostname", f"{role}-{index}", "--network-alias", f"{role}-{index}"]
            if role != "ps":
                own += ["--cpus", str(division.threads)]
            if division.gpus and (ids := division.gpus[role, index]):
                # Replicas' collectives use shared memory, of which a container has 64 MB if nothing is said.
                own += ["--gpus", f'"device={",".join(ids)}"', "--shm-size", "1g"]
            for variable in (*env, ATTEMPT):
                own += ["--env", variable]
            line = [*shared, *own, "--entrypoint", program_line[0], image, *program_line[1:]]
            replicas.append(
                Replica(
                    role=role,
                    index=index,
                    command=(*_CLIENT, "run", name, *line),
                    env=env,
                    log=f"{stem}.log",
                    status=status,
                    cleanup=("docker", "rm", "--force", "--volumes", name),
                )
            )
    return job_plan(
        cluster,
        program,
        "docker",
        log_dir=log_dir,
        replicas=replicas,
        setup=((*_PREPARE, network, place, "shared" if "://" in place else "locked"),),
        teardown=(*_CLIENT, "remove", network),
        notes=(f"image: {image}; network: {network}", *division.notes),
    )


def network_name(place: str) -> str:
    """Of one launcher of the job at this place: another's is another."""
    return f"training-{hashlib.sha256(place.encode()).hexdigest()[:12]}-{secrets.token_hex(4)}"


def check_engine(image: str) -> bool:
    """Looks for the engine and the image. Returns whether the engine is rootless.

    Raises:
      UserError: If one is missing.
    """
    asked = _docker("info", "--format", "{{.ServerVersion}} {{json .SecurityOptions}}")
    if asked.returncode or not asked.stdout.split():
        why = (asked.stderr.strip().splitlines() or ["it does not answer"])[-1]
        raise UserError(f"no container engine: {why}; start Docker, or use --backend process")
    if _docker("image", "inspect", image).returncode:
        repair = "make it with 'make image'" if image == DEFAULT_IMAGE else f"get it with 'docker pull {image}'"
        raise UserError(f"--image {image}: no such image on this machine; {repair}")
    return "name=rootless" in asked.stdout


def mount(path: str, what: str, *, writable: bool) -> Mount:
    """A directory, or file, to mount; `what` names the flag that it comes from.

    Raises:
      UserError: If it is not there.
    """
    if not os.path.exists(path):
        raise UserError(f"{what} {path}: no such file or directory on this machine; containers see it at this path")
    return Mount(path=path, writable=writable)


def _distinct(mounts: Sequence[Mount]) -> list[tuple[str, str]]:
    """Flags for the mounts, a path that is in another one only where it may be written and that may not."""
    paths: dict[str, bool] = {}
    for each in mounts:
        path = os.path.abspath(each.path)
        paths[path] = paths.get(path, False) or each.writable
    return [
        ("--mount", _bind(path, writable))
        for path, writable in sorted(paths.items())
        if not any(str(above) in paths and paths[str(above)] >= writable for above in Path(path).parents)
    ]


def _bind(path: str, writable: bool) -> str:
    """A bind mount as a line of CSV, which the engine's client takes."""
    quoted = path.replace('"', '""')
    return f'type=bind,"source={quoted}","target={quoted}"{"" if writable else ",readonly"}'


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["docker", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ENGINE_S
        )
    except FileNotFoundError:
        raise UserError(
            "no container engine: there is no program docker; install it, or use --backend process"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"no container engine: it has not answered within {_ENGINE_S:.0f} s") from None
