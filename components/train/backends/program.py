"""The program that the replicas of a job run: the project's trainer, or one of the user's own."""

import dataclasses
import os
from collections.abc import Sequence

from common.cli import split_words
from common.errors import UserError, about
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import strategy_flag
from trainer import options


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A command that every replica runs.

    Attributes:
      command: Program and its first arguments. If the first word is `python`, each back end runs
        its own Python.
      args: Further arguments.
      env: Environment variables that it needs; the vertex back end does not use them.
      job_dir: Directory in which the job keeps its state.
      trainer: Options of the project's trainer, which writes status files; None for a program of
        the user's own.
      code: Directory that is put on Python's path for a program of the user's own, or None.
    """

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    job_dir: str
    trainer: options.Options | None = None
    code: str | None = None


def trainer_flags(cluster: Cluster, flags: Sequence[str]) -> list[str]:
    """Returns the trainer's flags, with `--strategy` of the cluster added if it is missing.

    Raises:
      UserError: If `--strategy` has no value, or another one than the cluster.
    """
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
    """Returns the project's trainer, `python -m trainer.task`, with these flags and `--strategy`.

    Raises:
      UserError: If a flag is wrong, or names another strategy than the cluster. Without this check,
        each replica would refuse it some seconds later.
    """
    with about("trainer flags, behind the '--'"):
        flags = trainer_flags(cluster, flags)
        opts = options.parse(flags)
    return Program(
        command=("python", "-m", "trainer.task"),
        args=tuple(flags),
        # The trainer would start itself again if this were not set.
        env={"PYTHONHASHSEED": "0"},
        job_dir=opts.job_dir,
        trainer=opts,
    )


def own_program(
    command: str, args: Sequence[str] = (), *, code: str | None = None, job_dir: str | None
) -> Program:
    """Returns a program of the user's own, which finds its role in TF_CONFIG.

    Args:
      command: Command line as typed in a shell. `python` and `python3` as its first word stand for
        the Python of the place where it runs.
      args: Further arguments.
      code: Directory to put first on Python's path, or None.
      job_dir: Directory for logs and the launcher's records. The program is not told about it.

    Raises:
      UserError: If the command is empty or has an open quotation, if `job_dir` is None or empty, or
        if there is no directory `code`.
    """
    words = split_words("--command", command)
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
        # `python -m` looks in the working directory otherwise, where packages of this project may
        # be called like the user's.
        env["PYTHONSAFEPATH"] = "1" if "-m" in words else ""
        env["PYTHONPATH"] = os.pathsep.join(
            filter(None, [os.path.abspath(code), os.environ.get("PYTHONPATH")])
        )
    return Program(command=tuple(words), args=tuple(args), env=env, job_dir=job_dir, code=code)
