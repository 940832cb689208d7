"""What each strategy needs of the pools, and which one a job trains with.

most_gpus("parameter_server", "worker") == 1
choose(source, flags=["--sync"])  # source.values["strategy"] is now "multi_worker_mirrored", and "ps" is gone
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

from common.cli import Parser
from common.errors import UserError
from components.train.cluster.source import Source

Strategy = Literal["one_device", "mirrored", "multi_worker_mirrored", "parameter_server"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# The strategies that can have a pool.
STRATEGIES_WITH = {
    "worker": ("multi_worker_mirrored", "parameter_server"),
    "ps": ("parameter_server",),
}
SYNC = "--sync"


def most_gpus(strategy: str, role: str) -> float:
    """Returns the number of GPUs that a replica can compute on, which may be infinite.

    TensorFlow's worker of a parameter-server job fails in its first step if it has several; the chief there hands out
    the work, and parameter servers only add numbers up.
    """
    if strategy == "parameter_server":
        return {"chief": 0, "ps": 0}.get(role, 1)
    return 1 if strategy == "one_device" or role == "evaluator" else math.inf


def choose(source: Source, flags: Sequence[str] = (), strategy: str | None = None) -> None:
    """Sets the strategy of a source whose file may leave it open, or be overridden.

    TensorFlow 2 has no synchronous training with parameter servers. If that is required, the workers reduce gradients
    among themselves, which computes the same update, and the parameter servers are dropped, with a note.

    Args:
      source: Its `values` are a mapping; they are changed.
      flags: The trainer's. `--sync` counts, and `--strategy` unless the source is a cluster file.
      strategy: Overrides the file and the flags.

    Raises:
      UserError: If the flags contradict each other.
    """
    from_file = source.values.get("strategy")
    from_flags = strategy or (None if source.ours else named(flags))
    chosen = from_flags or from_file
    if chosen == "parameter_server" and SYNC in flags:
        if from_flags:
            raise UserError("--sync: parameter servers train asynchronously in TensorFlow 2; leave one of the two out")
        chosen = "multi_worker_mirrored"
    if chosen:
        source.values["strategy"] = chosen
    if from_file == "parameter_server" != chosen:
        source.values.pop("ps", None)
        source.replacements.append(
            f"{SYNC if SYNC in flags else '--strategy'}: the parameter servers are dropped: synchronous workers reduce "
            "gradients among themselves, which computes the same update"
        )


def named(flags: Sequence[str]) -> str | None:
    """Returns the strategy that the trainer's flags name, if they do."""
    parser = Parser(prog="python -m trainer.task", add_help=False)
    parser.add_argument("--strategy")
    return parser.parse_known_args(list(flags))[0].strategy


def job_flags(source: Source, flags: Sequence[str]) -> list[str]:
    """Returns the flags of the trainer, else those of the file, without `--sync`, which the strategy stands for."""
    if flags and source.args:
        source.notes.append("trainingInput.args: not used, as flags are given to the trainer here")
    chosen = [flag for flag in (flags or source.args) if flag != SYNC]
    if source.job_dir and not any(flag.startswith(("--job-dir", "--job_dir")) for flag in chosen):
        chosen += ["--job-dir", source.job_dir]
    return chosen
