"""Which keys of a cluster file a back end ignores, and the line that says so."""

from collections.abc import Iterator

from components.train.cluster.cluster_file import By, Cluster
from components.train.cluster.validation import Model
from trainer.cluster.member import ROLES

_HERE = "it runs on this machine as it is"
_WHY = {
    "process": _HERE,
    "docker": _HERE,
    "ssh": "it runs on the hosts as they are",
    "vertex": "Vertex AI runs it by rules of its own",
}


def ignored(cluster: Cluster, backend: str) -> tuple[str, ...]:
    """What to tell of the keys that are set and that the back end ignores: one line, or none."""
    # Each pool's keys are told of once.
    names = dict.fromkeys(".".join(path[1:] if path[0] in ROLES else path) for path in _ignored(cluster, backend))
    return (f"--backend {backend} ignores {', '.join(names)}, as {_WHY[backend]}",) if names else ()


def _ignored(model: Model, backend: str, *above: str) -> Iterator[tuple[str, ...]]:
    """Path of each key that has not its default, and names back ends without this one."""
    for key, field in type(model).model_fields.items():
        value = getattr(model, key)
        by = next((each.back_ends for each in field.metadata if isinstance(each, By)), (backend,))
        if backend in by and isinstance(value, Model):
            yield from _ignored(value, backend, *above, key)
        elif backend not in by and value not in (None, field.default):
            yield *above, key
