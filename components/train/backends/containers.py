"""The docker back end: one container per replica, on this machine, in a network of its own.

Every container sees the job's directories at the paths that they have here, its own in the same working directory, and
nothing else of this machine. Replicas reach each other as `worker-1:2222`; no port is published.
A container that is paused (SIGSTOP) is found frozen by its silence alone.
"""

import argparse
import dataclasses
import hashlib
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from components.train.backends import engine_client
from components.train.backends.engine_client import docker
from components.train.backends.environment import job_plan, log_place
from components.train.backends.plan import ATTEMPT, DEFAULT_IMAGE, Plan, Replica
from components.train.backends.program import Program
from components.train.backends.resources import divide_here
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError
from trainer.base.files import is_remote

_PORT = 2222
_CLIENT = (sys.executable, "-P", "-S", engine_client.__file__)
_PREPARE = (sys.executable, "-m", "components.train.backends.engine_client", "prepare")
_ENGINE_S = 20.0


def plan_containers(args: argparse.Namespace, cluster: Cluster, program: Program) -> Plan:
    """Plans one container per replica, with the flags of the command line; for `--dry-run` without engine or image."""
    log_dir = log_place(program, args.log_dir)
    image, mounts = args.image or DEFAULT_IMAGE, _mounts(args, program, log_dir)
    division = divide_here(cluster)
    rootless = not args.dry_run and _check_engine(image)
    in_bucket = is_remote(program.job_dir)
    place = program.job_dir if in_bucket else os.path.realpath(program.job_dir)
    # Of one launcher of the job at this place: another's is another.
    network = f"training-{hashlib.sha256(place.encode()).hexdigest()[:12]}-{secrets.token_hex(4)}"
    shared = [
        *("docker", "run", "--init", "--log-driver", "none", "--network", network),
        *("--label", f"{engine_client.LABEL}={network}", "--label", f"{engine_client.JOB}={place}"),
        *("--workdir", os.getcwd(), *_mount_flags(mounts)),
        *("--user", engine_client.caller(rootless=rootless), "--env", "HOME=/tmp"),
    ]
    if args.memory_gb:
        shared += ["--memory", f"{args.memory_gb * 2**30:.0f}", "--memory-swap", f"{args.memory_gb * 2**30:.0f}"]
    # What the launcher takes for Python is a path of this machine.
    entry, *words = ["python" if word == sys.executable else word for word in program.command]

    def run(replica: Replica) -> Replica:
        host = f"{replica.role}-{replica.index}"
        name = f"{network}-{host}"
        share = division.shares[replica.role, replica.index]
        env = {**replica.env, "TRAINER_THREADS": str(share.threads)}
        own = ["--name", name, "--hostname", host, "--network-alias", host]
        if replica.role != "ps":
            own += ["--cpus", str(share.threads)]
        if share.gpus:
            # Replicas' collectives use shared memory, of which a container has 64 MB if nothing is said.
            own += ["--gpus", f'"device={",".join(share.gpus)}"', "--shm-size", "1g"]
        for variable in (*env, ATTEMPT):
            own += ["--env", variable]
        return dataclasses.replace(
            replica,
            command=(*_CLIENT, "run", name, *shared, *own, "--entrypoint", entry, image, *words),
            env=env,
            cleanup=("docker", "rm", "--force", "--volumes", name),
        )

    return job_plan(
        cluster,
        program,
        "docker",
        log_dir=log_dir,
        address=lambda role, index: f"{role}-{index}:{_PORT}",
        run=run,
        notes=(f"image: {image}; network: {network}", *division.notes),
        setup=((*_PREPARE, network, place, "shared" if in_bucket else "locked"),),
        teardown=(*_CLIENT, "remove", network),
    )


def _mounts(args: argparse.Namespace, program: Program, log_dir: str) -> dict[str, bool]:
    """Absolute paths of this machine that containers see at the same place, and whether they may write there."""
    given = [("--mount", path, True) for path in args.mount or ()]
    given += [("--data-dir", program.data_dir, False), ("--cache-dir", program.cache_dir, True)]
    given += [("--code", program.code, False), ("", program.job_dir, True), ("", log_dir, True)]
    found: dict[str, bool] = {}
    for flag, path, writable in given:
        if not path or is_remote(path):
            continue
        if flag and not os.path.exists(path):
            raise UserError(f"{flag} {path}: no such file or directory on this machine; containers see it at this path")
        path = os.path.abspath(path)
        found[path] = found.get(path, False) or writable
    return found


def _mount_flags(mounts: Mapping[str, bool]) -> list[str]:
    """A path that is in another one has a mount of its own only if it may be written and that may not."""
    words = []
    for path, writable in sorted(mounts.items()):
        above = [mounts[str(each)] for each in Path(path).parents if str(each) in mounts]
        if above and max(above) >= writable:
            continue
        quoted = path.replace('"', '""')  # The engine's client reads a line of CSV.
        read_only = "" if writable else ",readonly"
        words += ["--mount", f'type=bind,"source={quoted}","target={quoted}"{read_only}']
    return words


def _check_engine(image: str) -> bool:
    """Looks for the engine and the image; returns whether the engine is rootless, that is, runs as this user."""
    try:
        asked = docker("info", "--format", "{{.ServerVersion}} {{json .SecurityOptions}}", limit_s=_ENGINE_S)
        there = docker("image", "inspect", image, limit_s=_ENGINE_S)
    except FileNotFoundError:
        raise UserError(
            "no container engine: there is no program docker; install it, or use --backend process"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"no container engine: it has not answered within {_ENGINE_S:.0f} s") from None
    if asked.returncode or not asked.stdout.split():
        why = (asked.stderr.strip().splitlines() or ["it does not answer"])[-1]
        raise UserError(f"no container engine: {why}; start Docker, or use --backend process")
    if there.returncode:
        repair = "make it with 'make image'" if image == DEFAULT_IMAGE else f"get it with 'docker pull {image}'"
        raise UserError(f"--image {image}: no such image on this machine; {repair}")
    return "name=rootless" in asked.stdout
