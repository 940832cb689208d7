"""Trains on a cluster: python -m components.train --cluster FILE [--dry-run] -- <trainer flags>"""

import argparse
import sys
from collections.abc import Sequence

from common.cli import run_cli
from common.errors import UserError
from components.train.backends.backend import Job
from components.train.backends.program import Program, own_program, trainer_program
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.source import Source
from components.train.command_line import BACKENDS, parse
from components.train.supervision.output import Output


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the job's exit code."""
    args = parse(argv)
    backend_class = BACKENDS[args.backend]
    backend = backend_class(backend_class.Options.of(args))
    if args.status:
        status = backend.status(args.status)
        print("\n".join([status.details, *status.replicas, status.last_words]))
        return 0
    if args.stop:
        return backend.cancel(args.stop)
    if not args.cluster:
        raise UserError("--cluster is missing; add for example --cluster clusters/local.yaml")
    source, cluster = _cluster(args)
    source.print_notes()
    job = Job(cluster=cluster, program=_program(cluster, args), dry_run=args.dry_run, region=source.region)
    with backend.plan(job) as plan:
        if args.dry_run:
            print(plan.to_json())
            return 0
        with Output() as output:
            return backend.submit(plan, output)


def _cluster(args: argparse.Namespace) -> tuple[Source, Cluster]:
    """Returns the cluster of `--cluster`; flags and job directory that are not set become those of a file that has them."""
    is_own = args.command is not None  # It has flags of its own.
    source = read(args.cluster, [] if is_own else args.flags or None, args.strategy)
    if args.strict:
        source.refuse_replacements()
    cluster = source.cluster
    if args.max_restarts is not None:
        scheduling = cluster.scheduling.model_copy(update={"max_restarts": args.max_restarts})
        cluster = cluster.model_copy(update={"scheduling": scheduling})
    if is_own:
        args.flags, args.job_dir = args.flags or list(source.args), args.job_dir or source.job_dir
    else:
        args.flags = source.trainer_flags(args.flags)
    return source, cluster


def _program(cluster: Cluster, args: argparse.Namespace) -> Program:
    if args.command is not None:
        return own_program(cluster, args.command, args.flags, code=args.code, job_dir=args.job_dir)
    for flag, value in (("--code", args.code), ("--job-dir", args.job_dir)):
        if value:
            raise UserError(f"{flag} here is for --command; flags of our trainer go behind the '--'")
    return trainer_program(cluster, args.flags)


if __name__ == "__main__":
    run_cli(lambda: main(sys.argv[1:]))
