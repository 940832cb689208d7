"""What the replicas of a job run: our trainer, or a program of the user's own."""

import dataclasses
import os
import shlex
from collections.abc import Sequence

from common.errors import UserError, about
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import strategy_flag
from trainer import options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A command that every replica runs."""

    command: tuple[
        str, ...
    ]  # Its first word is `python` for the Python of the place where it runs.
    args: tuple[str, ...] = ()  # Its arguments.
    env: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # Variables that it needs on machines of the user's.
    job_dir: str  # Where the job keeps its state.
    trainer: options.Options | None = (
        None  # The flags of our trainer, which reports its status; None of others.
    )
    code: str | None = (
        None  # Directory of the user's own program that Python finds modules in, if one is named.
    )


def trainer_flags(cluster: Cluster, flags: Sequence[str]) -> list[str]:
    """Returns the trainer's flags with the cluster's strategy among them; refuses another."""
    strategy = strategy_flag(flags)
    if strategy is None:
        return [*flags, "--strategy", cluster.strategy]
    if strategy != cluster.strategy:
        raise UserError(
            f"--strategy {strategy}: the cluster file says {cluster.strategy}; remove the flag or "
            "edit the file"
        )
    return list(flags)


def trainer_program(cluster: Cluster, flags: Sequence[str]) -> Program:
    """Returns `python -m trainer.task` with these flags, which are checked here and not by a replica some seconds later."""
    with about("trainer flags, behind the '--'"):
        flags = trainer_flags(cluster, flags)
        opts = options.parse(flags)
    return Program(
        command=("python", "-m", "trainer.task"),
        args=tuple(flags),
        env={"PYTHONHASHSEED": "0"},  # else it would start itself again with it
        job_dir=opts.job_dir,
        trainer=opts,
    )


def own_program(
    command: str, args: Sequence[str] = (), *, code: str | None = None, job_dir: str | None
) -> Program:
    """Returns a program of the user's own that reads TF_CONFIG.

    Args:
      command: A line as typed in a shell; `python` and `python3` are that of the place where it
        runs.
      args: More arguments.
      code: Directory to put on Python's path.
      job_dir: Where logs and the launcher's records go; the program does not see it.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--command {command!r}: {error}; close the quotation") from None
    if not words:
        raise UserError(
            "--command is empty; write for example --command 'python -m mytrainer.task'"
        )
    if not job_dir:
        raise UserError("--command needs a place for logs; add --job-dir DIR before the '--'")
    if words[0] == "python3":
        words[0] = "python"
    env = {}
    if code:
        if not os.path.isdir(code):
            raise UserError(
                f"--code {code}: no such directory; name the one that holds your package"
            )
        env["PYTHONPATH"] = os.pathsep.join(
            filter(None, [os.path.abspath(code), os.environ.get("PYTHONPATH")])
        )
    return Program(command=tuple(words), args=tuple(args), env=env, job_dir=job_dir, code=code)
