"""The flags of `python -m components.train`, each with what heeds it: a back end, or what is done in place of a run.

args = parse(["--cluster", "clusters/local.yaml", "--", "--data-dir", "data/digits"])
args.mode == "process"
"""

import argparse
from collections.abc import Sequence
from typing import Any

from components.train.backends.plan import DEFAULT_IMAGE
from components.train.cluster.keys import STRATEGIES
from components.train.cluster.quotas import DEFAULT_REGION
from components.train.console.view import FORMATS
from components.train.supervision.timeouts import Patience
from trainer.base.errors import Parser, UserError
from trainer.base.flags import at_least, positive

LOCAL = ("process", "docker", "ssh")
BACK_ENDS = (*LOCAL, "vertex")
INSTEAD = ("explain", "status", "stop")
_DESCRIPTION = """Trains on the machines of a cluster file. What follows '--' goes to python -m trainer.task, or to
the program of --command."""
_EXIT_CODES = """exit codes: 0 done; 143 or 130 saved after SIGTERM or Ctrl-C; 124 saved at the cluster file's
scheduling.timeout; 2 a mistake that the message names; else that of the replica that failed (128+n: killed by a
signal). docs/RUNNING.md says more."""
# Flags with argparse's options, by group: its title, and who heeds its flags; `by` says who heeds one where that
# differs. No flag has a default, so that one which is given can be told.
_GROUPS: dict[tuple[str, tuple[str, ...]], dict[str, dict[str, Any]]] = {
    ("what runs, and where", (*BACK_ENDS, "explain")): {
        "--cluster": {
            "metavar": "FILE|TIER",
            "help": "cluster file such as clusters/local.yaml, a trainingInput file of AI Platform, or a scale tier of "
            "it such as STANDARD_1",
        },
        "--explain": {
            "by": ("explain",),
            "action": "store_true",
            "help": "print in full what the cluster means; start nothing",
        },
        "--strict": {"action": "store_true", "help": "refuse what would have to be replaced or left out"},
        "--strategy": {"choices": STRATEGIES, "help": "in place of the cluster's own, or of what its pools imply"},
        "--backend": {
            "by": BACK_ENDS,
            "choices": BACK_ENDS,
            "help": "process (if not given): one process per replica on this machine; docker: one container; ssh: "
            "processes on other hosts; vertex: prints the worker pools",
        },
        "--dry-run": {"by": BACK_ENDS, "action": "store_true", "help": "print the plan as JSON and start nothing"},
        "--region": {
            "by": ("vertex", "explain"),
            "help": f"to check GPUs and quotas of Vertex AI in (the cluster file's, else {DEFAULT_REGION})",
        },
        "flags": {"nargs": "*", "metavar": "trainer flags", "help": "see python -m trainer.task --help"},
    },
    ("a program of your own, in place of our trainer", LOCAL): {
        "--command": {
            "by": (*BACK_ENDS, "explain"),
            "metavar": "LINE",
            "help": "what every replica runs, 'python -m mytrainer.task ...'",
        },
        "--code": {"metavar": "DIR", "help": "directory to put on Python's path (on Vertex AI it is in the image)"},
        "--job-dir": {"metavar": "DIR", "help": "where logs and the launcher's records go"},
    },
    ("on this machine", LOCAL): {
        "--log-dir": {"metavar": "DIR", "help": "one log per replica (<job-dir>/replicas without)"},
        "--log-format": {
            "by": (*LOCAL, "status"),
            "choices": FORMATS,
            "help": "live on a terminal, else plain, if not given",
        },
        "--max-restarts": {
            "type": at_least(0),
            "metavar": "N",
            "help": "after errors, and as many after preemptions (the cluster file's scheduling.max_restarts without)",
        },
        "--start-timeout-s": {
            "type": positive,
            "metavar": "S",
            "help": f"for a replica to come up ({Patience().start_s:.0f})",
        },
        "--silence-timeout-s": {
            "type": positive,
            "metavar": "S",
            "help": "without a sign of life, after which a replica is frozen (by what it does: training 300, ...)",
        },
    },
    ("containers (--backend docker)", ("docker",)): {
        "--image": {
            "by": ("docker", "vertex", "explain"),
            "metavar": "REF",
            "help": f"container image, of the docker back end ({DEFAULT_IMAGE} without, what 'make image' builds) or "
            "of the vertex back end",
        },
        "--mount": {
            "metavar": "DIR",
            "action": "append",
            "help": "another directory that containers see at the same path, may write to, and may be given again; "
            "they see the job's, the dataset's and --code's anyway",
        },
        "--memory-gb": {"type": positive, "metavar": "GB", "help": "that each may use (all there is without)"},
    },
    ("other hosts (--backend ssh)", ("ssh",)): {
        "--hosts": {"metavar": "FILE", "help": "hosts, one a line: [user@]name[:port] [slots=N] [address=A]"},
        "--sync-dst-dir": {
            "metavar": "DIR",
            "help": "directory on the disk of every host: the dataset is copied into it before, checkpoints come back "
            "from it; for hosts that share no storage",
        },
        "--ssh-command": {"metavar": "LINE", "help": "client and options, 'ssh -i KEY' for example (ssh without)"},
        "--remote-python": {
            "metavar": "PATH",
            "help": "on the hosts (the one that runs this, else python3, if not given)",
        },
    },
    ("a job that runs or ran on this machine", ()): {
        "--status": {"by": ("status",), "metavar": "JOB_DIR", "help": "print how it is; no cluster is needed"},
        "--stop": {"by": ("stop",), "metavar": "JOB_DIR", "help": "have it save and end, and wait for that"},
    },
}
# By flag: what heeds it.
HEEDED_BY = {flag: options.get("by", by) for (_, by), flags in _GROUPS.items() for flag, options in flags.items()}


def parser() -> Parser:
    """The parser of all flags."""
    found = Parser(
        prog="python -m components.train",
        usage="%(prog)s --cluster FILE|TIER [options] -- <trainer flags>",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
    )
    for (title, _), flags in _GROUPS.items():
        group = found.add_argument_group(title)
        for flag, options in flags.items():
            group.add_argument(flag, **{key: value for key, value in options.items() if key != "by"})
    return found


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, with `mode` beside them: the back end, or what is done in place of a run.

    Raises:
      UserError: If a flag is unknown, or is one that the mode does not heed.
    """
    args = parser().parse_args(argv)
    args.mode = next((mode for mode in INSTEAD if getattr(args, mode)), args.backend or "process")
    for flag, by in HEEDED_BY.items():
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        given = value is not None and value is not False and value != []
        if given and args.mode not in by:
            name = "what follows '--'" if flag == "flags" else flag
            raise UserError(f"{name} is for {', '.join(map(_shown, by))}, not for {_shown(args.mode)}; leave it out")
    return args


def _shown(mode: str) -> str:
    return f"--{mode}" if mode in INSTEAD else f"--backend {mode}"
