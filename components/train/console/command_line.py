"""The flags of `python -m components.train`, each with what heeds it: a back end, or what is done in place of a run."""

import argparse
import dataclasses
import functools
from collections.abc import Sequence

from common.cli import Flags, Parser, flag
from common.errors import UserError
from common.flags import at_least, positive
from components.train.backends.job_settings import DEFAULT_REGION, JobSettings
from components.train.backends.plan import DEFAULT_IMAGE
from components.train.cluster.cluster_file import STRATEGIES
from components.train.supervision.timeouts import Patience

LOCAL = ("process", "docker", "ssh")
BACK_ENDS = (*LOCAL, "vertex")
INSTEAD = ("explain", "status", "stop")
_DESCRIPTION = """Trains on the machines of a cluster file. What follows '--' goes to python -m trainer.task, or to
the program of --command."""
_EXIT_CODES = """exit codes: 0 done; 143, 130 or 129 saved after SIGTERM, Ctrl-C or a closed terminal; 124 saved at the
cluster file's scheduling.timeout; 137 a replica had to be killed before it had saved; 2 a mistake that the message names; 75 no
machines to be had (Vertex AI); else that of the replica that failed (128+n: killed by a signal). docs/RUNNING.md and docs/CLOUD.md say more."""
_ANY = (*BACK_ENDS, "explain")
# By group, and as what heeds its flags unless one says otherwise. No flag has a default, so that one which is given can
# be told.
_what = functools.partial(flag, group="what runs, and where", by=_ANY)
_own = functools.partial(flag, group="a program of your own, in place of our trainer", by=LOCAL)
_here = functools.partial(flag, group="on this machine", by=LOCAL)
_docker = functools.partial(flag, group="containers (--backend docker)", by=("docker",))
_ssh = functools.partial(flag, group="other hosts (--backend ssh)", by=("ssh",))
_vertex = functools.partial(flag, group="a job of Vertex AI (--backend vertex)", by=("vertex",))
_job = functools.partial(flag, str, group="a job that runs or ran on this machine", metavar="JOB_DIR")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(Flags):
    cluster: str | None = _what(
        str,
        "cluster file such as clusters/local.yaml, a trainingInput file of AI Platform, or a scale tier of it such as "
        "STANDARD_1",
        metavar="FILE|TIER",
    )
    explain: bool = _what(bool, "print in full what the cluster means; start nothing", by=("explain",))
    strict: bool = _what(bool, "refuse what would have to be replaced or left out")
    strategy: str | None = _what(STRATEGIES, "in place of the cluster's own, or of what its pools imply")
    backend: str | None = _what(
        BACK_ENDS,
        "process (if not given): one process per replica on this machine; docker: one container; ssh: processes on "
        "other hosts; vertex: a job of Vertex AI",
        by=BACK_ENDS,
    )
    dry_run: bool = _what(bool, "print the plan as JSON and start nothing", by=BACK_ENDS)
    region: str | None = _what(
        str,
        f"of Vertex AI (the cluster file's, else {DEFAULT_REGION})",
        "--location",
        by=("vertex",),
    )
    command: str | None = _own(str, "what every replica runs, 'python -m mytrainer.task ...'", by=_ANY, metavar="LINE")
    code: str | None = _own(str, "directory to put on Python's path (on Vertex AI it is in the image)", metavar="DIR")
    job_dir: str | None = _own(str, "where logs and the launcher's records go", by=BACK_ENDS, metavar="DIR")
    log_dir: str | None = _here(str, "one log per replica (<job-dir>/replicas without)", metavar="DIR")
    max_restarts: int | None = _here(
        at_least(0),
        "after errors, and as many after preemptions (the cluster file's scheduling.max_restarts without)",
        by=BACK_ENDS,
    )
    grace_period_s: float | None = _here(
        positive,
        f"that replicas have to save after a stop request, before they are killed ({Patience.grace_period_s:g} without)",
        by=(*LOCAL, "stop"),
        metavar="SECONDS",
    )
    image: str | None = _docker(
        str,
        f"container image, of the docker back end ({DEFAULT_IMAGE} without, what 'make image' builds) or of the vertex "
        "back end",
        by=("docker", "vertex"),
        metavar="REF",
    )
    mount: tuple[str, ...] | None = _docker(
        str,
        "another directory that containers see at the same path, may write to, and may be given again; they see the "
        "job's, the dataset's and --code's anyway",
        metavar="DIR",
        several=True,
    )
    memory_gb: float | None = _docker(positive, "that each may use (all there is without)", metavar="GB")
    hosts: str | None = _ssh(str, "hosts, one a line: [user@]name[:port] [slots=N] [address=A]", metavar="FILE")
    ssh_command: str | None = _ssh(str, "client and options, 'ssh -i KEY' for example (ssh without)", metavar="LINE")
    remote_python: str | None = _ssh(
        str, "on the hosts (the path of the one that runs this, if not given)", metavar="PATH"
    )
    project: str | None = _vertex(str, "id of the project (GOOGLE_CLOUD_PROJECT without)", metavar="ID")
    max_machine_hours: float | None = _vertex(positive, "that all its jobs together may take (any)")
    status: str | None = _job("print how it is; no cluster is needed", by=("status",))
    stop: str | None = _job("have it save and end, and wait for that", by=("stop",))


# By flag: what heeds it.
HEEDED_BY = {f"--{each.name.replace('_', '-')}": each.metadata["by"] for each in dataclasses.fields(_Options)}
HEEDED_BY |= {f"--{each.name.replace('_', '-')}": ("vertex",) for each in dataclasses.fields(JobSettings)}
HEEDED_BY["flags"] = _ANY


def parser() -> Parser:
    """The parser of all flags."""
    found = Parser(
        prog="python -m components.train",
        usage="%(prog)s --cluster FILE|TIER [options] -- <trainer flags>",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
    )
    found.add_argument("flags", nargs="*", metavar="trainer flags", help="see python -m trainer.task --help")
    _Options.add_flags(found)
    JobSettings.add_flags(found)
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, and as `mode` the back end or what is done in place of a run; a flag that it does not heed is refused."""
    args = parser().parse_args(argv)
    args.mode = next((mode for mode in INSTEAD if getattr(args, mode)), args.backend or "process")
    for name, by in HEEDED_BY.items():
        value = getattr(args, name.removeprefix("--").replace("-", "_"))
        given = value is not None and value is not False and value != []
        if given and args.mode not in by:
            shown = "what follows '--'" if name == "flags" else name
            raise UserError(f"{shown} is for {', '.join(map(_shown, by))}, not for {_shown(args.mode)}; leave it out")
    return args


def _shown(mode: str) -> str:
    return f"--{mode}" if mode in INSTEAD else f"--backend {mode}"
