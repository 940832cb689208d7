"""The docker back end: one container per replica, on this machine, in a network of its own.

Every container sees the job's directories at the paths that they have here, its own in the same working directory, and
nothing else of this machine. Replicas reach each other as `worker-1:2222`; no port is published.
A container that is paused (SIGSTOP) is found frozen by its silence alone.
"""

import argparse
import dataclasses
import hashlib
import os
import sys

from common import container_engine
from common.errors import UserError
from common.storage.storage import is_remote
from components.train.backends import docker_client
from components.train.backends.environment import job_plan, log_place
from components.train.backends.plan import ATTEMPT, DEFAULT_IMAGE, Plan, Replica
from components.train.backends.program import Program
from components.train.backends.resources import divide_here
from components.train.cluster.cluster_file import Cluster

_PORT = 2222
_CLIENT = (sys.executable, "-m", "components.train.backends.docker_client")


def plan_containers(args: argparse.Namespace, cluster: Cluster, program: Program) -> Plan:
    """Plans one container per replica, with the flags of the command line; for `--dry-run` without engine or image."""
    log_dir = log_place(program, args.log_dir)
    image, mounts = args.image or DEFAULT_IMAGE, _mounts(args, program, log_dir)
    division = divide_here(cluster)
    rootless = not args.dry_run and container_engine.check_engine("--backend process")
    if not args.dry_run and container_engine.docker("image", "inspect", image).returncode:
        repair = "make it with 'make image'" if image == DEFAULT_IMAGE else f"get it with 'docker pull {image}'"
        raise UserError(f"--image {image}: no such image on this machine; {repair}")
    # One for each job directory: what a launcher that was killed left is found again.
    place = program.job_dir if is_remote(program.job_dir) else os.path.realpath(program.job_dir)
    network = f"training-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
    shared = [
        *("--log-driver", "none", "--network", network, "--label", f"{docker_client.LABEL}={network}"),
        *("--workdir", os.getcwd(), "--env", "HOME=/tmp", *mounts),
        *container_engine.as_flags(container_engine.security_options(rootless=rootless)),
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
            command=(*_CLIENT, "run", name, "docker", "run", *shared, *own, "--entrypoint", entry, image, *words),
            env=env,
        )

    return job_plan(
        cluster,
        program,
        "docker",
        log_dir=log_dir,
        address=lambda role, index: f"{role}-{index}:{_PORT}",
        run=run,
        notes=(f"image: {image}; network: {network}", *division.notes),
        setup=((*_CLIENT, "prepare", network),),
        teardown=(*_CLIENT, "remove", network),
    )


def _mounts(args: argparse.Namespace, program: Program, log_dir: str) -> list[str]:
    """Returns flags by which containers see directories of this machine at the same paths."""
    writable = [("--mount", path) for path in args.mount or ()]
    writable += [("--cache-dir", program.cache_dir), ("", program.job_dir), ("", log_dir)]
    read_only = [("--data-dir", program.data_dir), ("--code", program.code)]
    options: dict[str, str] = {}
    for places, option in ((read_only, ",readonly"), (writable, "")):
        for flag, path in places:
            if not path or is_remote(path):
                continue
            if flag and not os.path.exists(path):
                raise UserError(
                    f"{flag} {path}: no such file or directory on this machine; containers see it at this path"
                )
            options[os.path.abspath(path)] = option
    flags = []
    for path, option in options.items():
        quoted = path.replace('"', '""')  # The engine's client reads a line of CSV.
        flags.append(f'--mount=type=bind,"source={quoted}","target={quoted}"{option}')
    return flags
