"""The back ends that run a job from this machine, chosen by `--backend`.

Synopsis:

    add_flags(parser)
    args = parser.parse_args()
    with planned(args, cluster, program) as plan:
        exit_code = supervisor.run(plan)
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
from collections.abc import Iterator

from components.train.backends import local_job
from components.train.backends.plan import DEFAULT_IMAGE, Plan
from components.train.backends.program import Program, trainer_options
from components.train.backends.resources import divide, usable_gpus
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError
from trainer.base.flags import positive
from trainer.base.machine import usable_cores

LOCAL = ("process", "docker", "ssh")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of single back ends."""
    of_docker = parser.add_argument_group("containers (--backend docker)")
    of_docker.add_argument(
        "--image",
        metavar="REF",
        help=f"container image, of the docker back end ({DEFAULT_IMAGE} without, what 'make image' builds) or of "
        "the vertex back end",
    )
    of_docker.add_argument(
        "--mount",
        metavar="DIR",
        action="append",
        help="another directory that containers see at the same path, may write to, and may be given again; they see "
        "the job's, the dataset's and --code's anyway",
    )
    of_docker.add_argument(
        "--memory-gb", type=positive, metavar="GB", help="that each container may use (all there is without)"
    )
    of_ssh = parser.add_argument_group("other hosts (--backend ssh)")
    of_ssh.add_argument("--hosts", metavar="FILE", help="hosts, one a line: [user@]name[:port] [slots=N] [address=A]")
    of_ssh.add_argument(
        "--sync-dst-dir",
        metavar="DIR",
        help="directory on the disk of every host: the dataset is copied into it before, checkpoints come back from it; "
        "for hosts that share no storage",
    )
    of_ssh.add_argument(
        "--ssh-command", metavar="LINE", default="ssh", help="client and options, 'ssh -i KEY -o User=me' for example"
    )
    of_ssh.add_argument(
        "--remote-python", metavar="PATH", help="on the hosts (the one that runs this, else python3, if not given)"
    )


@contextlib.contextmanager
def planned(args: argparse.Namespace, cluster: Cluster, program: Program) -> Iterator[Plan]:
    """Yields the plan of the chosen back end; what it needs is reserved until the block ends.

    Raises:
      UserError: If the job cannot run so.
    """
    if args.backend == "process":
        with local_job.planned(cluster, program, log_dir=args.log_dir, max_restarts=args.max_restarts) as plan:
            yield plan
    else:
        yield (_docker_plan if args.backend == "docker" else _ssh_plan)(args, cluster, program)


def _docker_plan(args: argparse.Namespace, cluster: Cluster, program: Program) -> Plan:
    from components.train.backends import containers  # this and ssh: what a job does not run on, it does not import

    image = args.image or DEFAULT_IMAGE
    mounts = [containers.mount(path, "--mount", writable=True) for path in args.mount or ()]
    if args.command is None:
        opts = trainer_options(cluster, args.flags)
        for what, path, writable in (("--data-dir", opts.data_dir, False), ("--cache-dir", opts.cache_dir, True)):
            if path and "://" not in path:
                mounts.append(containers.mount(path, what, writable=writable))
    elif args.code:
        mounts.append(containers.mount(args.code, "--code", writable=False))
    return containers.plan_containers(
        cluster,
        program,
        image=image,
        mounts=mounts,
        log_dir=local_job.log_place(program, args.log_dir),
        division=divide(cluster, cores=usable_cores(), gpus=usable_gpus()),
        rootless=not args.dry_run and containers.check_engine(image),
        memory_gb=args.memory_gb,
        max_restarts=args.max_restarts,
    )


def _ssh_plan(args: argparse.Namespace, cluster: Cluster, program: Program) -> Plan:
    from components.train.backends.hosts import ssh
    from components.train.backends.hosts.host_file import read_hosts

    if not args.hosts:
        raise UserError("--backend ssh needs hosts; add --hosts FILE with a host on each line")
    if args.sync_dst_dir and not args.sync_dst_dir.startswith("/"):
        raise UserError(f"--sync-dst-dir {args.sync_dst_dir}: not an absolute path; begin it with '/'")
    if args.command is None:
        opts = trainer_options(cluster, args.flags)
        paths = ssh.Paths(code=ssh.our_code(), data_dir=opts.data_dir, job_dir=opts.job_dir)
    else:
        paths = ssh.Paths(code=(args.code, (".",)) if args.code else None)
    return ssh.plan_hosts(
        cluster,
        program,
        hosts=read_hosts(args.hosts),
        paths=paths,
        log_dir=local_job.log_place(program, args.log_dir),
        ssh=shlex.split(args.ssh_command),
        python=args.remote_python,
        sync_dir=args.sync_dst_dir,
        rsync=bool(shutil.which("rsync")),
        max_restarts=args.max_restarts,
    )
