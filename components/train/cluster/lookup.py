"""Reads what `--cluster` names: a file of ours, one of AI Platform, or a scale tier.

cluster = load_cluster("config.yaml")  # or load_cluster("STANDARD_1")
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.documents import parse_yaml
from common.errors import UserError, about, unknown
from components.train.cluster import ai_platform
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.source import Source, strategy_flag


def load_cluster(name: str | Path, flags: Sequence[str] = ()) -> Cluster:
    """Returns the cluster of a file or name; what differs from the file is printed on standard error.

    Args:
      name: Path or name.
      flags: The trainer's, which may decide the strategy.
    """
    source = read(name, flags)
    cluster = source.cluster
    if source.args or source.job_dir:
        source.notes.append("args, jobDir: not used: this command has flags of its own for them")
    source.print_notes()
    return cluster


def read(name: str | Path, flags: Sequence[str] | None = None, override: str | None = None) -> Source:
    """Reads a file, or expands the name of a tier or legacy machine.

    Args:
      name: Path or name.
      flags: The trainer's, which may decide the strategy; None for those that the file has.
      override: Strategy in place of the file's.
    """
    name = str(name)
    document = None if os.path.lexists(name) else ai_platform.named(name)
    document = document or _parsed(name)
    with about(name):
        if ai_platform.is_one(document):
            source = ai_platform.translate(document, name)
            flags = source.args if flags is None else flags
            override = override or strategy_flag(flags)
        else:
            source = Source(name=name, values=document)
        if isinstance(source.values, dict):
            source.choose_strategy(flags or (), override)
        return source


def _parsed(name: str) -> Any:
    path = Path(name)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        near = [str(each) for each in path.parent.glob("*.yaml")]
        if path.suffix or os.sep in name:
            raise unknown("cluster file", name, near) from None
        raise unknown("cluster file or scale tier", name, [*near, *ai_platform.NAMES]) from None
    except OSError as error:
        raise UserError(f"cluster file {name}: {error.strerror}") from None
    with about(name):
        return parse_yaml(content)
