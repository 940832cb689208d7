"""What a cluster means in full, for people: `python -m components.train --cluster X --explain`."""

from collections import Counter
from collections.abc import Iterator

import yaml

from components.train.backends.cluster_spec import misnamed
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.machines import AS_OF, offered
from components.train.cluster.notes import Source

_ROW = "{:<10} {:>8}  {:<20} {:>6} {:>10}  {}"


def explain(source: Source, cluster: Cluster, region: str) -> None:
    """Prints it to standard output."""
    from components.templates import templates  # Jinja: a job that is run has no use for it.

    brief = cluster.model_dump(exclude_none=True, exclude_defaults=True)
    text = (
        templates(__package__)
        .get_template("explain.txt")
        .render(
            source=source,
            cluster=cluster,
            region=region,
            pools=[_ROW.format(*row).rstrip() for row in _pools(cluster)],
            cluster_file=yaml.safe_dump(brief, sort_keys=False, default_flow_style=None, width=110).rstrip(),
            as_of=AS_OF,
            misnamed=misnamed(cluster),
            without_machine=[role for role, pool in cluster.pools.items() if not pool.machine],
        )
    )
    print(text, end="")


def _pools(cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """The rows of a table: its head, a row for each pool, and the sums."""
    yield "pool", "replicas", "machine", "vCPUs", "memory GB", "GPUs"
    sums: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    for role, pool in cluster.pools.items():
        vcpus, memory_gb, accelerator = "", "", ""
        if pool.machine:
            machine = offered()[pool.machine]
            vcpus, memory_gb = f"{machine.vcpus}", f"{machine.memory_gb:g}"
            sums["vcpus"] += machine.vcpus * pool.replicas
            sums["memory_gb"] += machine.memory_gb * pool.replicas
        if gpu := pool.accelerator:
            accelerator = f"{gpu.count} x {gpu.type}"
            gpus[gpu.type] += gpu.count * pool.replicas
        yield role, f"{pool.replicas}", pool.machine or "this machine", vcpus, memory_gb, accelerator
    total = ", ".join(f"{count} x {gpu}" for gpu, count in gpus.items()) or "none"
    vcpus, memory_gb = (f"{sums['vcpus']}", f"{sums['memory_gb']:g}") if sums else ("", "")
    yield "in all", f"{cluster.replicas}", "", vcpus, memory_gb, total
