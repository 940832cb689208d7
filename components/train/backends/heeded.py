"""Which keys of a cluster file a back end ignores, and the line that says so."""

import functools
from collections.abc import Iterator
from typing import Any, get_args

from components.train.cluster.checks import Model
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import By, Keys
from trainer.replicas.member import ROLES

_HERE = "it runs on this machine as it is"
_WHY = {
    "process": _HERE,
    "docker": _HERE,
    "ssh": "it runs on the hosts as they are",
    "vertex": "it prints worker pools and nothing of the job around them",
}


def ignored(cluster: Cluster, backend: str) -> tuple[str, ...]:
    """What to tell of the keys that are set and that the back end ignores: one line, or none."""
    names: dict[str, None] = {}
    for path, default in _unheeded(backend):
        value = functools.reduce(lambda value, key: getattr(value, key, None), path, cluster)
        if value not in (None, default):
            names[".".join(path[1:] if path[0] in ROLES else path)] = None
    return (f"--backend {backend} ignores {', '.join(names)}, as {_WHY[backend]}",) if names else ()


def _unheeded(backend: str, model: type[Model] = Keys, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and default of each key that names back ends without this one."""
    for key, field in model.model_fields.items():
        by = next((each.back_ends for each in field.metadata if isinstance(each, By)), (backend,))
        if backend not in by:
            yield (*above, key), field.default
            continue
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, Model):
                yield from _unheeded(backend, inner, *above, key)
