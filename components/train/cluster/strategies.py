"""Which strategy a cluster trains with, where its file leaves it open or a flag asks for another.

source = resolve(read("STANDARD_1"), flags=["--sync"])
source.values["strategy"] == "multi_worker_mirrored"  # and the parameter servers are gone
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from components.train.cluster.fitting import fit
from components.train.cluster.notes import Note, Source
from trainer.base.errors import Parser, UserError

SYNC = "--sync"


def resolve(source: Source, flags: Sequence[str] = (), strategy: str | None = None) -> Source:
    """The source with its strategy decided.

    A flag decides first, then the file, then the pools: with parameter servers `parameter_server`, else with workers
    `multi_worker_mirrored`, else `mirrored` with several GPUs and `one_device` without. TensorFlow 2 has no synchronous
    training with parameter servers: asked for it, the workers reduce gradients among themselves, which computes the
    same update, and the parameter servers go. Of the trainer's flags `--sync` and, where the file names no strategy,
    `--strategy` count; `strategy` overrides all of them.

    Raises:
      UserError: If the flags contradict each other or the pools.
    """
    values = source.values
    if not isinstance(values, Mapping):
        return source  # Whoever reads the values refuses that.
    own = values.get("strategy") if source.ours else _inferred(values)
    asked, by = strategy, "--strategy"
    if not asked and not source.ours:
        asked = named(flags)
    if SYNC in flags:
        if asked == "parameter_server":
            raise UserError("--sync: parameter servers train asynchronously in TensorFlow 2; leave one of the two out")
        if not asked and own == "parameter_server":
            asked, by = "multi_worker_mirrored", SYNC
    notes = source.notes
    if flags and source.args and tuple(flags) != source.args:
        notes = (*notes, Note(place="trainingInput.args", text="not used, as flags are given to the trainer here"))
    if asked == "parameter_server" and "ps" not in values:
        raise UserError(f"--strategy {asked}: {source.name} has no parameter servers; add some, or choose another")
    if asked in ("one_device", "mirrored") and "worker" in values:
        raise UserError(f"--strategy {asked} is for one machine, and {source.name} has workers; remove them there")
    if asked and asked != "parameter_server" and "ps" in values:
        values = {role: pool for role, pool in values.items() if role != "ps"}
        what = "the parameter servers are dropped: synchronous workers reduce gradients among themselves"
        notes = (*notes, Note(place=by, text=f"{what}, which computes the same update", changes=True))
    if not source.ours:
        values, more = fit(values, asked or own)
        notes = (*notes, *more)
    elif asked:
        values = {**values, "strategy": asked}
    return dataclasses.replace(source, values=values, notes=notes)


def named(flags: Sequence[str]) -> str | None:
    """The strategy that the trainer's flags name, if they do."""
    parser = Parser(prog="python -m trainer.task", add_help=False)
    parser.add_argument("--strategy")
    return parser.parse_known_args(list(flags))[0].strategy


def job_flags(source: Source, flags: Sequence[str]) -> list[str]:
    """The flags of the trainer: those given, else the file's; `--sync` is the strategy's by now."""
    chosen = [flag for flag in (flags or source.args) if flag != SYNC]
    if source.job_dir and not any(flag.startswith(("--job-dir", "--job_dir")) for flag in chosen):
        chosen += ["--job-dir", source.job_dir]
    return chosen


def _inferred(values: Mapping[str, Any]) -> str:
    if "ps" in values:
        return "parameter_server"
    if "worker" in values:
        return "multi_worker_mirrored"
    return "mirrored" if values["chief"].get("accelerator", {}).get("count", 0) > 1 else "one_device"
