"""Reads what `--cluster` names: a cluster file, an AI Platform file, or a scale tier.

    cluster = load_cluster("config.yaml")  # Or load_cluster("STANDARD_1").

`read` returns the content before its check, with notes of what was changed in it.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from common.cli import Parser
from common.documents import parse_yaml
from common.errors import UserError, about, readable, unknown
from components.train.cluster import ai_platform
from components.train.cluster.cluster_file import SYNC, Cluster, Source


def load_cluster(name: str | Path, flags: Sequence[str] = ()) -> Cluster:
    """Returns the checked cluster of a file or scale tier.

    Prints a line on standard error for each key that is replaced, translated or not used.

    Args:
      name: Path of a file, or name of a scale tier or legacy machine.
      flags: Flags of the trainer: `--sync` drops the parameter servers, and in an AI Platform file
        `--strategy` replaces the strategy. Flags in such a file do not count.

    Raises:
      UserError: If there is no such file or name, its content is wrong, or the flags contradict
        each other.
    """
    source = read(name, flags)
    cluster = source.cluster
    if source.args or source.job_dir:
        source.notes.append("args, jobDir: not used: this command has flags of its own for them")
    source.print_notes()
    return cluster


def read(
    name: str | Path, flags: Sequence[str] | None = None, override: str | None = None
) -> Source:
    """Reads a file, or expands the name of a tier or legacy machine, and sets its strategy.

    The strategy is `override`, else that of the flags (for AI Platform files only), else that of
    the file. TensorFlow 2 has no synchronous training with parameter servers. If the file has some,
    and `--sync` or another strategy is given, the parameter servers are dropped and the workers
    reduce gradients among themselves, which computes the same update. `Source.replacements` says
    so.

    Args:
      name: Path of a file, or name of a scale tier or legacy machine.
      flags: Flags of the trainer, of which `--sync` counts, and `--strategy` if this is an AI
        Platform file. None stands for the flags in that file.
      override: Strategy in place of the file's, or None.

    Returns:
      The content with notes of what was changed. `Source.cluster` checks it: a cluster file may
      still break a rule.

    Raises:
      UserError: If there is no such file or name, it cannot be read or is not valid YAML, an AI
        Platform file cannot be translated, `--strategy` has no value, or `--sync` is given with
        `parameter_server` as `override` or as `--strategy` of an AI Platform file.
    """
    name = str(name)
    if os.path.lexists(name):
        with readable(name), about(name):
            document = parse_yaml(Path(name).read_bytes())
    else:
        document = ai_platform.named(name)
        if not document:
            path = Path(name)
            tiers = () if path.suffix or os.sep in name else ai_platform.NAMES
            near = [str(each) for each in path.parent.glob("*.yaml")]
            raise unknown(
                "cluster file or scale tier" if tiers else "cluster file", name, [*near, *tiers]
            )
    with about(name):
        if ai_platform.is_one(document):
            source = ai_platform.translate(document, name)
            flags = source.args if flags is None else flags
            override = override or strategy_flag(flags)
        else:
            source = Source(name=name, values=document)
        values = source.values
        if not isinstance(values, dict):
            return source  # `Source.cluster` reports that this is no mapping.
        from_file = values.get("strategy")
        chosen = override or from_file
        is_sync = SYNC in (flags or ())
        if chosen == "parameter_server" and is_sync:
            if override:
                raise UserError(
                    "--sync: parameter servers train asynchronously in TensorFlow 2; leave one of "
                    "the two out"
                )
            chosen = "multi_worker_mirrored"
        if chosen:
            values["strategy"] = chosen
        if from_file == "parameter_server" != chosen:
            values.pop("ps", None)
            source.replacements.append(
                f"{SYNC if is_sync else '--strategy'}: the parameter servers are dropped: "
                "synchronous workers reduce gradients among themselves, which computes the same "
                "update"
            )
        return source


def strategy_flag(flags: Sequence[str]) -> str | None:
    """Returns the value of `--strategy` among the trainer's flags; None if it is not there.

    Raises:
      UserError: If the flag has no value.
    """
    parser = Parser(prog="python -m trainer.task", add_help=False)
    parser.add_argument("--strategy")
    return parser.parse_known_args(list(flags))[0].strategy
