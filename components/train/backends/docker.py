"""The docker back end: one container per replica, on this machine, in a network of its own."""

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterator

from common import container_engine
from common.cli import as_list, flag
from common.container_engine import DEFAULT_IMAGE
from common.errors import UserError
from common.storage.storage import is_remote
from components.train.backends.backend import Job
from components.train.backends.host_agent import VISIBLE
from components.train.backends.local import LocalBackend, LocalOptions
from components.train.backends.resources import THREADS
from components.train.supervision.plan import ATTEMPT, Plan, Replica

_PORT = 2222
_LABEL = "training.network"  # Label of containers, whose value is the name of their network.
# Commands for `sh -c`. Their $0 is the name of a container (_RUN) or of the job's network.
_RUN = 'docker rm --force --volumes "$0" >/dev/null 2>&1; exec "$@"'
# The engine may still be creating a container whose client was killed: it refuses to remove the
# container then, and may not even list it. Hence this goes on until two lists in a row are empty.
_REMOVE = (
    "empty=0; for round in 1 2 3 4 5 6 7 8 9; do "
    f'left=$(docker ps --all --quiet --filter "label={_LABEL}=$0"); '
    'if [ "$left" ]; then empty=0; docker rm --force --volumes $left; '
    "else empty=$((empty + 1)); [ $empty = 2 ] && break; fi; sleep 0.5; done; "
    'docker network rm "$0"'
)
_PREPARE = f'({_REMOVE}) >/dev/null 2>&1; docker network create "$0"'
_docker = functools.partial(flag, group="containers (--backend docker)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DockerOptions(LocalOptions):
    """Flags of the docker back end."""

    image: str | None = _docker(
        str,
        f"container image, of the docker back end ({DEFAULT_IMAGE} without, what 'make image' "
        "builds) or of the vertex back end",
        metavar="REF",
    )
    mount: tuple[str, ...] | None = _docker(
        str,
        "another directory that containers see at the same path, may write to, and may be given "
        "again; they see the job's, the dataset's and --code's anyway",
        metavar="DIR",
        several=True,
    )


class DockerBackend(LocalBackend):
    """Runs each replica in a container on this machine.

    A container sees the directories of the job, its logs, its dataset and cache, `--code` and
    `--mount` at the same paths as on this machine, and no others. It has the same working
    directory. Replicas reach each other at addresses such as `worker-1:2222`; no port is published.
    An image that is not on this machine is refused, not pulled.

    Ignored here: machine and accelerator types, alternatives, the disk and `scheduling.strategy`. A
    paused container is found to be frozen only by the silence of its status file.
    """

    name = "docker"
    Options = DockerOptions

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Plan]:
        """Plans one `docker run` client for each replica, and the network that they share.

        The network is created by the plan's `setup`. A dry run needs neither Docker nor the image.

        Raises:
          UserError: If Docker does not answer, if the image or a directory is not on this machine,
            if the job directory is in a bucket and there is no `--log-dir`, or if this machine has
            GPUs, but fewer than the cluster file asks for.
        """
        program, plan = (
            job.program,
            self.job_plan(job, [f"{role}-{i}:{_PORT}" for role, i in job.cluster.members]),
        )
        image, mounts = self.options.image or DEFAULT_IMAGE, self._mounts(job, plan.log_dir)
        rootless = not job.dry_run and container_engine.check_engine("--backend process")
        if not job.dry_run and container_engine.docker("image", "inspect", image).returncode:
            repair = (
                "make it with 'make image'"
                if image == DEFAULT_IMAGE
                else f"get it with 'docker pull {image}'"
            )
            raise UserError(f"--image {image}: no such image on this machine; {repair}")
        # The network's name is derived from the job directory, so that the next launcher finds and
        # removes what a killed one has left.
        place = program.job_dir if is_remote(program.job_dir) else os.path.realpath(program.job_dir)
        network = f"training-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        shared = [
            *("--log-driver=none", f"--network={network}", f"--label={_LABEL}={network}"),
            *(f"--workdir={os.getcwd()}", "--env=HOME=/tmp", *mounts),
            *container_engine.as_flags(container_engine.security_options(rootless=rootless)),
        ]
        entry, *words = [*program.command, *program.args]

        # Returns the replica with the command and environment of its `docker run` client.
        def contained(replica: Replica) -> Replica:
            host = f"{replica.role}-{replica.index}"
            name = f"{network}-{host}"
            env = dict(replica.env)
            own = [f"--name={name}", f"--hostname={host}", f"--network-alias={host}"]
            if replica.role != "ps":
                own.append(f"--cpus={env[THREADS]}")
            if gpus := env.pop(VISIBLE, ""):
                # Collective operations between GPUs use shared memory, and the 64 MB that a
                # container has by default are too little.
                own += [f'--gpus="device={gpus}"', "--shm-size=1g"]
            own += [f"--env={variable}" for variable in (*env, ATTEMPT)]
            line = ("docker", "run", *shared, *own, "--entrypoint", entry, image, *words)
            return dataclasses.replace(replica, command=("sh", "-c", _RUN, name, *line), env=env)

        yield dataclasses.replace(
            plan,
            replicas=tuple(map(contained, plan.replicas)),
            notes=(f"image: {image}; network: {network}", *plan.notes),
            setup=(("sh", "-c", _PREPARE, network),),
            teardown=("sh", "-c", _REMOVE, network),
        )

    def _mounts(self, job: Job, log_dir: str) -> list[str]:
        """Returns flags of `docker run` that mount the job's directories at their own paths.

        Containers may write to the job, log and cache directories and those of `--mount`, but not
        to the dataset and `--code`, unless `--mount` names them. Paths in a bucket are left out.

        Raises:
          UserError: If a path other than the job and log directories does not exist.
        """
        program, trainer = job.program, job.program.trainer
        read_only = [program.code, trainer and trainer.data_dir]
        own = [program.job_dir, log_dir]
        writable = [trainer and trainer.cache_dir, *as_list(self.options.mount), *own]
        flags = {}
        for path in (*read_only, *writable):
            if not path or is_remote(path):
                continue
            if path not in own and not os.path.exists(path):
                raise UserError(
                    f"{path}: no such file or directory on this machine; containers see it at "
                    "this path"
                )
            place = os.path.abspath(path)
            quoted = place.replace('"', '""')  # Docker parses the value of --mount as CSV.
            mode = "" if path in writable else ",readonly"
            flags[place] = f'--mount=type=bind,"source={quoted}","target={quoted}"{mode}'
        return list(flags.values())
