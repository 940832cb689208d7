"""Trains on a cluster: python -m components.train --cluster FILE [--dry-run] -- <trainer flags>"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from components.train.backends import registry
from components.train.backends.program import Program, own_command, own_program, trainer_options, trainer_program
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import STRATEGIES
from components.train.cluster.lookup import Source, read
from components.train.cluster.notes import refuse_changes, tell
from components.train.cluster.quotas import DEFAULT_REGION, quota_warnings
from components.train.cluster.strategies import job_flags, resolve
from components.train.console import job_control
from components.train.console.view import FORMATS, view_for
from components.train.supervision import supervisor
from components.train.supervision.health import Limits
from components.train.supervision.timeouts import Patience
from trainer.base.errors import Parser, UserError, run_cli
from trainer.base.flags import at_least, positive
from trainer.base.machine import usable_cores

_EXIT_CODES = """exit codes: 0 done; 143 or 130 saved after SIGTERM or Ctrl-C; 124 saved at the cluster file's
scheduling.timeout; 2 a mistake that the message names; else that of the replica that failed (128+n: killed by signal n).
docs/RUNNING.md says more."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the job's exit code."""
    args = _parser().parse_args(argv)
    if args.status:
        return job_control.show(args.status, args.log_format)
    if args.stop:
        return job_control.stop(args.stop)
    if not args.cluster:
        raise UserError("--cluster is missing; add for example --cluster clusters/local.yaml")
    source, cluster = _cluster(args)
    if args.explain or args.backend == "vertex":
        return _vertex(source, cluster, args)
    program = _program(cluster, args)
    with registry.planned(args, cluster, program) as plan:
        if not args.dry_run:
            with view_for(args.log_format) as view:
                return supervisor.run(plan, view, _patience(args))
        print(plan.to_json())
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="python -m components.train",
        usage="%(prog)s --cluster FILE|TIER [options] -- <trainer flags>",
        description="Trains on the machines of a cluster file. What follows '--' goes to python -m trainer.task, or to "
        "the program of --command.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument(
        "--cluster",
        metavar="FILE|TIER",
        help="cluster file such as clusters/local.yaml, a trainingInput file of AI Platform, or a scale tier of it "
        "such as STANDARD_1",
    )
    parser.add_argument("--explain", action="store_true", help="print in full what the cluster means; start nothing")
    parser.add_argument("--strict", action="store_true", help="refuse what would have to be replaced or left out")
    parser.add_argument(
        "--strategy", choices=STRATEGIES, help="in place of the cluster's own, or of what its pools imply"
    )
    parser.add_argument(
        "--backend",
        choices=(*registry.LOCAL, "vertex"),
        default="process",
        help="process: one process per replica on this machine; docker: one container; ssh: processes on other hosts; "
        "vertex: prints the worker pools",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan as JSON and start nothing")
    parser.add_argument(
        "--region",
        help=f"of the vertex back end, to check GPUs and quotas (the cluster file's, else {DEFAULT_REGION})",
    )
    parser.add_argument("flags", nargs="*", metavar="trainer flags", help="see python -m trainer.task --help")
    own = parser.add_argument_group("a program of your own, in place of our trainer")
    own.add_argument("--command", metavar="LINE", help="what every replica runs, 'python -m mytrainer.task ...'")
    own.add_argument("--code", metavar="DIR", help="directory to put on Python's path")
    own.add_argument("--job-dir", metavar="DIR", help="where logs and the launcher's records go")
    local = parser.add_argument_group("on this machine")
    local.add_argument("--log-dir", metavar="DIR", help="one log per replica (<job-dir>/replicas without)")
    local.add_argument("--log-format", choices=FORMATS, help="live on a terminal, else plain, if not given")
    local.add_argument(
        "--max-restarts",
        type=at_least(0),
        metavar="N",
        help="after errors, and as many after preemptions (the cluster file's scheduling.max_restarts without)",
    )
    local.add_argument(
        "--start-timeout-s", type=positive, metavar="S", help=f"for a replica to come up ({Limits().start_s:.0f})"
    )
    local.add_argument(
        "--silence-timeout-s",
        type=positive,
        metavar="S",
        help="without a sign of life, after which a replica is frozen (by what it does: training 300, ...)",
    )
    registry.add_flags(parser)
    running = parser.add_argument_group("a job that runs or ran on this machine")
    running.add_argument("--status", metavar="JOB_DIR", help="print how it is; no cluster is needed")
    running.add_argument("--stop", metavar="JOB_DIR", help="have it save and end, and wait for that")
    return parser


def _cluster(args: argparse.Namespace) -> tuple[Source, Cluster]:
    """What `--cluster` says; flags and job directory that are not given become those of a file that names them."""
    source = read(args.cluster)
    ours = (
        [] if args.command is not None else args.flags or source.args
    )  # A program of the user's own has flags of its own.
    source = resolve(source, ours, args.strategy)
    if args.strict:
        refuse_changes(source.name, source.notes)
    cluster = Cluster.of(source)
    if args.command is not None:
        args.flags, args.job_dir = args.flags or list(source.args), args.job_dir or source.job_dir
    else:
        args.flags = job_flags(source, args.flags)
    if not args.explain:
        tell(source.name, source.notes)
    return source, cluster


def _program(cluster: Cluster, args: argparse.Namespace) -> Program:
    if args.command is not None:
        threads = max(1, usable_cores() // cluster.replicas)
        return own_program(args.command, args.flags, code=args.code, job_dir=args.job_dir, threads=threads)
    for flag, value in (("--code", args.code), ("--job-dir", args.job_dir)):
        if value:
            raise UserError(f"{flag} here is for --command; flags of our trainer go behind the '--'")
    return trainer_program(cluster, args.flags)


def _patience(args: argparse.Namespace) -> Patience:
    limits = Limits()
    if args.start_timeout_s:
        limits = dataclasses.replace(limits, start_s=args.start_timeout_s)
    if args.silence_timeout_s:
        limits = dataclasses.replace(limits, silence_s=dict.fromkeys(limits.silence_s, args.silence_timeout_s))
    # What has to come back from the chief's host takes longer to clean up than a container.
    return Patience(limits=limits, **({"cleanup_s": 600.0} if args.sync_dst_dir else {}))


def _vertex(source: Source, cluster: Cluster, args: argparse.Namespace) -> int:
    region = args.region or source.region or DEFAULT_REGION
    command = own_command(args.command) if args.command is not None else ()
    if args.explain:
        specs = []
        if all(pool.machine for pool in cluster.pools.values()):
            specs = plan_vertex(cluster, args.image or "IMAGE", args.flags, region=region, command=command)
        from components.train.console.explain import explain  # it draws tables: not for every start

        explain(source, cluster, specs, region)
        return 0
    if not args.dry_run:
        raise UserError("this command only plans for Vertex: add --dry-run, or submit with python pipelines/submit.py")
    if not args.image:
        raise UserError("the vertex back end needs a container image; add --image REF")
    specs = plan_vertex(cluster, args.image, args.flags, region=region, command=command)
    if not command:
        trainer_options(cluster, args.flags)  # refuses what every replica would, some minutes later
    for warning in quota_warnings(cluster, region):
        print(f"warning: {warning}", file=sys.stderr)
    print(json.dumps(specs, indent=2))
    return 0


if __name__ == "__main__":
    run_cli(lambda: main(sys.argv[1:]))
