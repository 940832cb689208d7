"""The flags of `python -m components.train`: those of every job, and those of each back end, in `BACKENDS`."""

import argparse
import dataclasses
import functools
from collections.abc import Sequence

from common.cli import Flags, Parser, flag
from common.errors import UserError
from common.flags import at_least
from components.train.backends.docker import DockerBackend
from components.train.backends.process import ProcessBackend
from components.train.backends.ssh import SshBackend
from components.train.backends.vertex import VertexBackend
from components.train.cluster.cluster_file import STRATEGIES

BACKENDS = {backend.name: backend for backend in (ProcessBackend, DockerBackend, SshBackend, VertexBackend)}
_DESCRIPTION = """Trains on the machines of a cluster file. What follows '--' goes to python -m trainer.task, or to
the program of --command."""
_EXIT_CODES = """exit codes: 0 done; 143, 130 or 129 saved after SIGTERM, Ctrl-C or a closed terminal; 124 saved at the
cluster file's scheduling.timeout; 137 a replica had to be killed before it had saved; 2 a mistake that the message names; 75 no
machines to be had (Vertex AI); else that of the replica that failed (128+n: killed by a signal). docs/RUNNING.md and docs/CLOUD.md say more."""
_what = functools.partial(flag, group="what runs, and where")
_job = functools.partial(flag, str, group="a job that runs or ran", metavar="JOB_DIR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(Flags):
    """Flags of every job. None has a default, so that one that is set can be told from one that is not."""

    cluster: str | None = _what(
        str,
        "cluster file such as clusters/local.yaml, a trainingInput file of AI Platform, or a scale tier of it such as "
        "STANDARD_1",
        metavar="FILE|TIER",
    )
    strict: bool = _what(bool, "refuse what would have to be replaced or left out")
    strategy: str | None = _what(STRATEGIES, "in place of the cluster's own, or of what its pools imply")
    backend: str | None = _what(
        tuple(BACKENDS),
        "process (without): one process per replica on this machine; docker: one container; ssh: processes on "
        "other hosts; vertex: a job of Vertex AI",
    )
    dry_run: bool = _what(bool, "print the plan as JSON and start nothing")
    command: str | None = _what(
        str, "program of your own that every replica runs in place of our trainer: 'python -m mine ...'", metavar="LINE"
    )
    job_dir: str | None = _what(str, "of --command: where logs and the launcher's records go", metavar="DIR")
    max_restarts: int | None = _what(
        at_least(0), "after errors, and as many after preemptions (the cluster file's scheduling.max_restarts without)"
    )
    status: str | None = _job("print how it is; no cluster is needed")
    stop: str | None = _job("have it save and end, and wait for that")


def parser() -> Parser:
    """Returns the parser of all flags."""
    parser = Parser(
        prog="python -m components.train",
        usage="%(prog)s --cluster FILE|TIER [options] -- <trainer flags>",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
    )
    parser.add_argument("flags", nargs="*", metavar="trainer flags", help="see python -m trainer.task --help")
    added: set[str] = set()
    for options in (_Options, *(backend.Options for backend in BACKENDS.values())):
        options.add_flags(parser, but=added)
        added |= _names(options)
    return parser


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Returns the arguments; refuses a flag that has no use with the back end, or with --status and --stop."""
    args = parser().parse_args(argv)
    args.backend = args.backend or ProcessBackend.name
    backend = BACKENDS[args.backend]
    usable = {"backend", "status", "stop", *backend.control_flags}
    where = "--status and --stop"
    if not args.status and not args.stop:
        usable = {"flags", *_names(_Options), *_names(backend.Options)}
        where = f"--backend {backend.name}"
    for name, value in vars(args).items():
        is_set = value is not None and value is not False and value != []
        if is_set and name not in usable:
            shown = "what follows '--'" if name == "flags" else f"--{name.replace('_', '-')}"
            raise UserError(f"{shown} has no use with {where}; leave it out")
    return args


def _names(options: type[Flags]) -> set[str]:
    return {field.name for field in dataclasses.fields(options)}
