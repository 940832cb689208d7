"""Divides the processor cores and GPUs of machines among the replicas of a job."""

import dataclasses
import itertools
from collections.abc import Sequence

from common.errors import UserError
from common.machine import usable_cores
from components.train.backends.host_agent import VISIBLE, usable_gpus
from components.train.cluster.cluster_file import Cluster, most_gpus

THREADS = "TRAINER_THREADS"
_Member = tuple[str, int]  # A replica's role and its index among those of the role.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine, and the replicas that run on it."""

    name: str  # For people.
    cores: int  # Shared when there are fewer than replicas.
    gpus: Sequence[str]  # Ids as CUDA_VISIBLE_DEVICES has them.
    replicas: Sequence[_Member]


def divide(cluster: Cluster, machines: Sequence[Machine] = ()) -> dict[_Member, dict[str, str]]:
    """Divides each machine, or else this one, among its replicas; returns the variables that keep each replica to its share.

    Those that compute get equal parts of the cores; parameter servers only add numbers up. Each
    replica gets the GPUs that its pool asks for. If no pool asks for any, all that train get as
    many as every machine has for each of its own.

    Raises:
      UserError: If a machine has fewer GPUs than are asked for. Where none has any, cores compute
        instead.
    """
    machines = machines or [
        Machine(
            name="this machine", cores=usable_cores(), gpus=usable_gpus(), replicas=cluster.members
        )
    ]
    counts = {role: pool.gpus for role, pool in cluster.pools.items()}
    if not any(counts.values()):
        most = {role: most_gpus(cluster.strategy, role) for role in counts if role != "evaluator"}
        trainers = [
            (machine, sum(most.get(role, 0) > 0 for role, _ in machine.replicas))
            for machine in machines
        ]
        even = min(len(machine.gpus) // count for machine, count in trainers if count)
        counts = {role: int(min(even, most.get(role, 0))) for role in counts}
    shares: dict[_Member, dict[str, str]] = {}
    for machine in machines:
        total = sum(counts[role] for role, _ in machine.replicas)
        if len(machine.gpus) < total and any(other.gpus for other in machines):
            raise UserError(
                f"the cluster file asks for {total} GPUs on {machine.name}, which has "
                f"{len(machine.gpus)}; lower "
                "accelerator.count, replicas, or a host's slots"
            )
        computing = sum(role != "ps" for role, _ in machine.replicas)
        threads = max(1, machine.cores // max(1, computing))
        ids = iter(machine.gpus)
        for role, index in machine.replicas:
            shares[role, index] = {THREADS: str(threads)}
            if machine.gpus:
                shares[role, index][VISIBLE] = ",".join(itertools.islice(ids, counts[role]))
    return shares
