"""Trains on a cluster: python -m components.train --cluster FILE [--dry-run] -- <trainer flags>"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence

from common.cli import run_cli
from common.errors import UserError
from common.machine import usable_cores
from components.train.backends import process
from components.train.backends.cluster_spec import misnamed
from components.train.backends.heeded import ignored
from components.train.backends.job_settings import DEFAULT_REGION
from components.train.backends.plan import Plan
from components.train.backends.program import Program, own_program, trainer_program
from components.train.backends.vertex import plan_submission
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.source import Source
from components.train.console import job_control
from components.train.console.command_line import parse
from components.train.console.explain import explain
from components.train.supervision import supervisor
from components.train.supervision.output import Output
from components.train.supervision.signals import signal_socket
from components.train.supervision.timeouts import Patience


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the job's exit code."""
    args = parse(argv)
    if args.status:
        return job_control.show(args.status)
    if args.stop:
        return job_control.stop(args.stop, args.grace_period_s)
    if not args.cluster:
        raise UserError("--cluster is missing; add for example --cluster clusters/local.yaml")
    source, cluster = _cluster(args)
    if args.explain:
        print(explain(source, cluster))
        return 0
    source.print_notes()
    if args.mode == "vertex":
        return _vertex(source, cluster, args)
    program = _program(cluster, args)
    with _planned(args, cluster, program) as plan:
        if not args.dry_run:
            patience = Patience(grace_period_s=args.grace_period_s or Patience.grace_period_s)
            with Output() as output:
                return supervisor.run(plan, output, patience)
        print(plan.to_json())
    return 0


def _cluster(args: argparse.Namespace) -> tuple[Source, Cluster]:
    """What `--cluster` says; flags and job directory that are not given become those of a file that names them."""
    own = args.command is not None  # It has flags of its own.
    source = read(args.cluster, [] if own else args.flags or None, args.strategy)
    if args.strict:
        source.refuse_replacements()
    cluster = source.cluster
    if args.max_restarts is not None:
        scheduling = cluster.scheduling.model_copy(update={"max_restarts": args.max_restarts})
        cluster = cluster.model_copy(update={"scheduling": scheduling})
    if own:
        args.flags, args.job_dir = args.flags or list(source.args), args.job_dir or source.job_dir
    else:
        args.flags = source.trainer_flags(args.flags)
    return source, cluster


def _program(cluster: Cluster, args: argparse.Namespace) -> Program:
    if args.command is not None:
        threads = max(1, usable_cores() // cluster.replicas)
        return own_program(args.command, args.flags, code=args.code, job_dir=args.job_dir, threads=threads)
    for flag, value in (("--code", args.code), ("--job-dir", args.job_dir)):
        if value:
            raise UserError(f"{flag} here is for --command; flags of our trainer go behind the '--'")
    return trainer_program(cluster, args.flags)


@contextlib.contextmanager
def _planned(args: argparse.Namespace, cluster: Cluster, program: Program) -> Iterator[Plan]:
    """Yields the plan of the chosen back end; what it needs is reserved until the block ends."""
    if args.mode == "process":
        with process.planned(cluster, program, log_dir=args.log_dir) as plan:
            yield plan
    elif args.mode == "docker":
        from components.train.backends import docker  # this and ssh: what a job does not run on, it does not import

        yield docker.plan_containers(args, cluster, program)
    else:
        from components.train.backends import ssh

        yield ssh.plan_hosts(args, cluster, program)


def _vertex(source: Source, cluster: Cluster, args: argparse.Namespace) -> int:
    """Prints or runs a job of Vertex AI."""
    submission = plan_submission(args, cluster, args.region or source.region or DEFAULT_REGION)
    for note in filter(None, [*ignored(cluster, "vertex"), misnamed(cluster)]):
        print(f"note: {note}", file=sys.stderr)
    if args.dry_run:
        print(f"note: what is printed is FILE of: {submission.gcloud()}", file=sys.stderr)
        print(json.dumps(submission.bodies[0]["jobSpec"], indent=2))
        return 0
    from components.train.supervision.submitted_job import SubmittedJob  # Google's clients

    with Output() as output, signal_socket() as signals:
        return SubmittedJob(submission, output, signals).run()


if __name__ == "__main__":
    run_cli(lambda: main(sys.argv[1:]))
