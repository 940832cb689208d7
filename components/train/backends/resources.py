"""Divides the processor cores and GPUs of machines among the replicas of a job."""

import dataclasses
import itertools
from collections.abc import Sequence

from common.errors import UserError
from common.machine import usable_cores
from components.train.backends.host_agent import VISIBLE, usable_gpus
from components.train.cluster.cluster_file import Cluster, most_gpus

THREADS = "TRAINER_THREADS"
_Member = tuple[str, int]  # A replica's role, and its index within the role.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine, and the replicas that run on it.

    Attributes:
      name: Name in messages.
      cores: Number of processor cores; replicas share cores if there are fewer than replicas.
      gpus: Ids of the GPUs as in CUDA_VISIBLE_DEVICES.
      replicas: Role and index of each replica.
    """

    name: str
    cores: int
    gpus: Sequence[str]
    replicas: Sequence[_Member]


def divide(cluster: Cluster, machines: Sequence[Machine] = ()) -> dict[_Member, dict[str, str]]:
    """Divides the cores and GPUs of each machine among its replicas.

    The cores are divided equally among the replicas other than parameter servers. Parameter servers
    compute little, and get as many threads as one of the others. Each replica gets as many GPUs as
    its pool asks for. If no pool asks for any, each replica that trains on GPUs gets the same
    number of them, the largest that every machine can give, or fewer if its role cannot use so
    many.

    Args:
      cluster: Pools of the job.
      machines: Machines with all replicas of the job; if empty, all run on this machine.

    Returns:
      Environment variables by replica: `TRAINER_THREADS`, the number of threads (at least 1), and,
      on a machine with GPUs, `CUDA_VISIBLE_DEVICES`, the ids of its GPUs (empty for none).

    Raises:
      UserError: If a machine has fewer GPUs than its replicas ask for. If no machine has any, this
        is no error: the replicas compute on processor cores.
    """
    machines = machines or [
        Machine(
            name="this machine", cores=usable_cores(), gpus=usable_gpus(), replicas=cluster.members
        )
    ]
    counts = {role: pool.gpus for role, pool in cluster.pools.items()}
    if not any(counts.values()):
        # Only replicas that compute updates get GPUs: the evaluator gets none, and neither does a
        # role whose maximum is 0.
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
                f"{len(machine.gpus)}; lower accelerator.count, replicas, or a host's slots"
            )
        computing = sum(role != "ps" for role, _ in machine.replicas)
        threads = max(1, machine.cores // max(1, computing))
        ids = iter(machine.gpus)
        for role, index in machine.replicas:
            shares[role, index] = {THREADS: str(threads)}
            if machine.gpus:
                shares[role, index][VISIBLE] = ",".join(itertools.islice(ids, counts[role]))
    return shares
