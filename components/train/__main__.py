"""Command line that trains on a cluster: `python -m components.train --help`."""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Sequence

from common.cli import Flags, Parser, flag, run_cli
from common.errors import UserError
from common.flags import at_least
from components.train.backends.backend import Backend, Job
from components.train.backends.docker import DockerBackend
from components.train.backends.kubernetes import KubernetesBackend
from components.train.backends.process import ProcessBackend
from components.train.backends.program import own_program, trainer_program
from components.train.backends.ssh import SshBackend
from components.train.backends.vertex import VertexBackend
from components.train.cluster.cluster_file import STRATEGIES
from components.train.cluster.lookup import read
from components.train.supervision.output import Output

BACKENDS = {
    backend.name: backend
    for backend in (
        ProcessBackend,
        DockerBackend,
        SshBackend,
        VertexBackend,
        KubernetesBackend,
    )
}
_DESCRIPTION = (
    "Trains on the machines of a cluster file. What follows '--' goes to python -m trainer.task, "
    "or to\nthe program of --command."
)
_EXIT_CODES = (
    "exit codes: 0 done; 143, 130 or 129 saved after SIGTERM, Ctrl-C or a closed terminal; 124 "
    "saved at the\ncluster file's scheduling.timeout; 137 a replica had to be killed before it had "
    "saved; 2 a mistake that the message names; 75 no\nmachines to be had (Vertex AI); else that "
    "of the replica that failed (128+n: killed by a signal). docs/RUNNING.md and docs/CLOUD.md say "
    "more."
)
_what = functools.partial(flag, group="what runs, and where")
_job = functools.partial(flag, str, group="a job that runs or ran", metavar="JOB_DIR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(Flags):
    """Flags that all back ends share.

    Every default but that of `backend` is None or False, by which `parse` tells the flags that are
    set.
    """

    cluster: str | None = _what(
        str,
        "cluster file such as clusters/local.yaml, a trainingInput file of AI Platform, or a scale "
        "tier of it such as STANDARD_1",
        metavar="FILE|TIER",
    )
    strict: bool = _what(bool, "refuse what would have to be replaced or left out")
    strategy: str | None = _what(
        STRATEGIES, "in place of the cluster's own, or of what its pools imply"
    )
    backend: str = _what(
        tuple(BACKENDS),
        "process: one process per replica on this machine; docker: one container; ssh: processes "
        "on other hosts; vertex: a job of Vertex AI; kubernetes: a JobSet",
        default=ProcessBackend.name,
    )
    dry_run: bool = _what(bool, "print the plan and start nothing")
    command: str | None = _what(
        str,
        "program of your own that every replica runs in place of our trainer: 'python -m mine ...'",
        metavar="LINE",
    )
    job_dir: str | None = _what(
        str, "of --command: where logs and the launcher's records go", metavar="DIR"
    )
    max_restarts: int | None = _what(
        at_least(0),
        "after errors, and as many after preemptions (the cluster file's scheduling.max_restarts "
        "without)",
    )
    status: str | None = _job("print how it is; no cluster is needed")
    stop: str | None = _job("have it save and end, and wait for that")
    logs: str | None = _job("print the output of its replicas, one after another")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line, and returns its exit code.

    Args:
      argv: Arguments without the program's name; those of this process if None.

    Returns:
      The exit code of the job; 0 after `--status`, `--logs` and `--dry-run`. After `--stop` it is 0
      if the job is done or has saved, else the exit code of the job.

    Raises:
      UserError: If the arguments, the files that they name, or the job are wrong.
      ConnectionError: If a bucket, Google Cloud or Kubernetes does not answer.
      ValueError: If `--ssh-command` has an open quotation.
      OSError: If this machine cannot write to the log directory of the ssh back end.
    """
    args = parse(argv)
    backend_class = BACKENDS[args.backend]
    backend: Backend = backend_class(backend_class.Options.of(args))
    if args.status:
        print("\n".join(backend.status(args.status).lines))
        return 0
    if args.stop:
        return backend.cancel(args.stop)
    if args.logs:
        for replica, line in backend.logs(args.logs):
            print(f"{replica} | {line}")
        return 0
    if not args.cluster:
        raise UserError("--cluster is missing; add for example --cluster clusters/local.yaml")
    job = _job_of(args)
    with backend.plan(job) as plan:
        if args.dry_run:
            print(plan.to_text())
            return 0
        with Output() as output:
            return backend.submit(plan, output)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Returns the parsed flags of all back ends; those behind `--` are the list `flags`.

    Args:
      argv: Arguments without the program's name; those of this process if None.

    Raises:
      UserError: If a flag is unknown or has a wrong value, or if it is set but has no use with the
        chosen back end, or with `--status`, `--stop` and `--logs`.
    """
    parser = Parser(
        prog="python -m components.train",
        usage="%(prog)s --cluster FILE|TIER [options] -- <trainer flags>",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
    )
    parser.add_argument(
        "flags", nargs="*", metavar="trainer flags", help="see python -m trainer.task --help"
    )
    names: set[str] = set()
    for options in (_Options, *(backend.Options for backend in BACKENDS.values())):
        options.add_flags(parser, but=names)
        names |= {*options.__dataclass_fields__}
    args = parser.parse_args(argv)
    backend = BACKENDS[args.backend]
    usable = {"flags", *_Options.__dataclass_fields__, *backend.Options.__dataclass_fields__}
    where = f"--backend {backend.name}"
    if args.status or args.stop or args.logs:
        usable = {"backend", "status", "stop", "logs", *backend.control_flags}
        where = "--status, --stop and --logs"
    for name, value in vars(args).items():
        is_set = value is not None and value is not False and value != []
        if is_set and name not in usable:
            shown = "what follows '--'" if name == "flags" else f"--{name.replace('_', '-')}"
            raise UserError(f"{shown} has no use with {where}; leave it out")
    return args


def _job_of(args: argparse.Namespace) -> Job:
    """Returns the job of a command line, and prints the notes on its cluster file.

    If the command line has no trainer flags or job directory, those of an AI Platform file are
    taken.

    Raises:
      UserError: If the cluster file or a flag is wrong, if the file needs a replacement that
        `--strict` refuses, or if `--code` or `--job-dir` is set without `--command`.
    """
    # The flags of a program of the user's own do not decide the strategy.
    is_own = args.command is not None
    source = read(args.cluster, [] if is_own else args.flags or None, args.strategy)
    if args.strict:
        source.refuse_replacements()
    cluster = source.cluster
    if args.max_restarts is not None:
        scheduling = cluster.scheduling.model_copy(update={"max_restarts": args.max_restarts})
        cluster = cluster.model_copy(update={"scheduling": scheduling})
    flags = args.flags or source.args if is_own else source.trainer_flags(args.flags)
    source.print_notes()
    if is_own:
        program = own_program(
            args.command, flags, code=args.code, job_dir=args.job_dir or source.job_dir
        )
    elif args.code or args.job_dir:
        raise UserError(
            "--code and --job-dir here are for --command; flags of our trainer go behind the '--'"
        )
    else:
        program = trainer_program(cluster, flags)
    return Job(cluster=cluster, program=program, dry_run=args.dry_run, region=source.region)


if __name__ == "__main__":
    run_cli(lambda: main(sys.argv[1:]))
