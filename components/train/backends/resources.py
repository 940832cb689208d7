"""Divides the processor cores and GPUs of machines among the replicas of a job."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from common.errors import UserError
from common.machine import usable_cores
from components.train.backends.host_agent import VISIBLE, usable_gpus
from components.train.cluster.cluster_file import Cluster, most_gpus

_Member = tuple[str, int]  # A replica's role and its index among those of the role.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine, and the replicas that run on it."""

    name: str  # For people.
    cores: int  # Shared when there are fewer than replicas.
    gpus: Sequence[str]  # Ids as CUDA_VISIBLE_DEVICES has them.
    replicas: Sequence[_Member]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """What one replica gets of its machine."""

    threads: int
    gpus: tuple[str, ...] | None  # None where the machine has none.

    @property
    def env(self) -> dict[str, str]:
        """Variables that keep the replica to its share."""
        gpus = {} if self.gpus is None else {VISIBLE: ",".join(self.gpus)}
        return {"TRAINER_THREADS": str(self.threads), **gpus}


def divide_here(cluster: Cluster) -> dict[_Member, Share]:
    """Divides this machine among all replicas."""
    here = Machine(name="this machine", cores=usable_cores(), gpus=usable_gpus(), replicas=cluster.members)
    return divide(cluster, [here])


def divide(cluster: Cluster, machines: Sequence[Machine]) -> dict[_Member, Share]:
    """Divides each machine among its replicas.

    Those that compute get equal parts of the cores; parameter servers only add numbers up. Each replica gets the GPUs that
    its pool asks for. If no pool asks for any, all that train get as many as every machine has for each of its own.

    Raises:
      UserError: If a machine has fewer GPUs than are asked for. Where none has any, cores compute instead.
    """
    counts = _gpu_counts(cluster, machines)
    shares: dict[_Member, Share] = {}
    for machine in machines:
        total = sum(counts[role] for role, _ in machine.replicas)
        if len(machine.gpus) < total and any(other.gpus for other in machines):
            raise UserError(
                f"the cluster file asks for {total} GPUs on {machine.name}, which has {len(machine.gpus)}; lower "
                "accelerator.count, replicas, or a host's slots"
            )
        computing = sum(role != "ps" for role, _ in machine.replicas)
        threads = max(1, machine.cores // max(1, computing))
        ids = iter(machine.gpus)
        for role, index in machine.replicas:
            gpus = tuple(itertools.islice(ids, counts[role])) if machine.gpus else None
            shares[role, index] = Share(threads=threads, gpus=gpus)
    return shares


def missing_gpus(cluster: Cluster, shares: Mapping[_Member, Share]) -> tuple[str, ...]:
    """Returns a line that names the replicas without the GPUs that the cluster file asks for, if there are any."""
    names = [f"{role}/{i}" for (role, i), share in shares.items() if cluster.pools[role].gpus and not share.gpus]
    return (f"no GPUs for {', '.join(names)}: cores compute instead",) if names else ()


def _gpu_counts(cluster: Cluster, machines: Sequence[Machine]) -> dict[str, int]:
    """Returns how many GPUs each replica of a role gets."""
    asked = {role: pool.gpus for role, pool in cluster.pools.items()}
    if any(asked.values()):
        return asked
    most = {role: most_gpus(cluster.strategy, role) for role in cluster.pools if role != "evaluator"}
    trainers = [(machine, sum(most.get(role, 0) > 0 for role, _ in machine.replicas)) for machine in machines]
    even = min(len(machine.gpus) // count for machine, count in trainers if count)
    return {role: int(min(even, most.get(role, 0))) for role in cluster.pools}
