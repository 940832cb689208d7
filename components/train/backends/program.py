"""What the replicas of a job run: our trainer, or a program of the user's own."""

import dataclasses
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from common.errors import UserError, about
from components.train.backends.plan import trainer_flags
from components.train.cluster.cluster_file import Cluster
from trainer import options

_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


# Arguments of `Done.covers`: steps, epochs, and evaluations without progress after which training ends.
Goal = tuple[int | None, float | None, int | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A command that every replica runs."""

    command: tuple[str, ...]  # Program and arguments.
    env: Mapping[str, str]  # Variables that it needs.
    job_dir: str  # Where the job keeps its state.
    reports: bool  # Whether it is our trainer, which writes status files and keeps its own state in `job_dir`.
    data_dir: str | None = None  # Of our trainer.
    cache_dir: str | None = None  # Of our trainer, if it is given one.
    goal: Goal | None = None  # Of our trainer.
    code: str | None = None  # Directory of the user's own program that Python finds modules in, if one is given.


def trainer_program(cluster: Cluster, flags: Sequence[str]) -> Program:
    """`python -m trainer.task` with these flags, which are checked here and not by a replica some seconds later."""
    with about("trainer flags, behind the '--'"):
        flags = trainer_flags(cluster, flags)
        opts = options.parse(flags)
    return Program(
        command=(sys.executable, "-m", "trainer.task", *flags),
        env={"PYTHONHASHSEED": "0"},  # else it would start itself again with it
        job_dir=opts.job_dir,
        reports=True,
        data_dir=opts.data_dir,
        cache_dir=opts.cache_dir,
        goal=(opts.train_steps, opts.train_epochs, opts.patience),
    )


def own_command(line: str) -> list[str]:
    """The words of a command of the user's own, as typed in a shell."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UserError(f"--command {line!r}: {error}; close the quotation") from None
    if not words:
        raise UserError("--command is empty; write for example --command 'python -m mytrainer.task'")
    return words


def own_program(
    command: str, more: Sequence[str] = (), *, code: str | None, job_dir: str | None, threads: int
) -> Program:
    """A program of the user's own that reads TF_CONFIG; on its command line `python` and `python3` are this interpreter.

    It is not told of `job_dir`, which is for logs and the launcher's records; TensorFlow is to use so many `threads`, as
    far as it leaves it the choice.
    """
    words = own_command(command)
    if not job_dir:
        raise UserError("--command needs a place for logs; add --job-dir DIR before the '--'")
    if words[0] in ("python", "python3"):
        words[0] = sys.executable
    env = {name: str(threads) for name in _THREADS}
    if code:
        if not os.path.isdir(code):
            raise UserError(f"--code {code}: no such directory; name the one that holds your package")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.abspath(code), os.environ.get("PYTHONPATH")]))
    return Program(command=(*words, *more), env=env, job_dir=job_dir, reports=False, code=code)
