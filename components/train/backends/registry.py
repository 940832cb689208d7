"""The back ends that run a job from this machine, chosen by `--backend`.

Synopsis:

    with planned(args, cluster, program) as plan:
        exit_code = supervisor.run(plan)
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
from collections.abc import Iterator

from components.train.backends import processes
from components.train.backends.environment import log_place
from components.train.backends.plan import DEFAULT_IMAGE, Plan
from components.train.backends.program import Program, trainer_options
from components.train.backends.resources import divide, usable_gpus
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError
from trainer.base.machine import usable_cores


@contextlib.contextmanager
def planned(args: argparse.Namespace, cluster: Cluster, program: Program) -> Iterator[Plan]:
    """Yields the plan of the chosen back end; what it needs is reserved until the block ends.

    Raises:
      UserError: If the job cannot run so.
    """
    if args.mode == "process":
        with processes.planned(cluster, program, log_dir=args.log_dir) as plan:
            yield plan
    else:
        yield (_docker_plan if args.mode == "docker" else _ssh_plan)(args, cluster, program)


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
        log_dir=log_place(program, args.log_dir),
        division=divide(cluster, cores=usable_cores(), gpus=usable_gpus()),
        rootless=not args.dry_run and containers.check_engine(image),
        memory_gb=args.memory_gb,
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
        log_dir=log_place(program, args.log_dir),
        ssh=shlex.split(args.ssh_command or "ssh"),
        python=args.remote_python,
        sync_dir=args.sync_dst_dir,
        rsync=bool(shutil.which("rsync")),
    )
