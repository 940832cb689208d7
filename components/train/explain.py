"""What a cluster means in full, for people: `python -m components.train --cluster X --explain`."""

from collections.abc import Iterator

import yaml

from components.train.backends.worker_pools import misnamed
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.machines import MACHINES
from components.train.cluster.source import Source

_ROW = "{:<10} {:>8}  {:<20} {:>6} {:>10}  {}"


def explain(source: Source, cluster: Cluster) -> str:
    """Returns it as text for a terminal."""
    from common.pages import templates  # Jinja: a job that is run has no use for it.

    brief = cluster.model_dump(exclude_none=True, exclude_defaults=True)
    template = templates(__package__).get_template("explain.txt")
    text = template.render(
        source=source,
        cluster=cluster,
        pools=[_ROW.format(*row).rstrip() for row in _pools(cluster)],
        cluster_file=yaml.safe_dump(brief, sort_keys=False, default_flow_style=None, width=110).rstrip(),
        misnamed=misnamed(cluster),
        without_machine=[role for role, pool in cluster.pools.items() if not pool.machine],
    )
    return text.rstrip()


def _pools(cluster: Cluster) -> Iterator[tuple[object, ...]]:
    """Yields the rows of a table: its head, and a row for each pool."""
    yield "pool", "replicas", "machine", "vCPUs", "memory GB", "GPUs"
    for role, pool in cluster.pools.items():
        gpus = f"{pool.accelerator.count} x {pool.accelerator.type}" if pool.accelerator else ""
        machine = MACHINES[pool.machine] if pool.machine else None
        size = (machine.vcpus, f"{machine.memory_gb:g}") if machine else ("", "")
        yield role, pool.replicas, pool.machine or "this machine", *size, gpus
