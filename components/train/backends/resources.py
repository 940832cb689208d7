"""Divides the processor cores and GPUs of a machine, or of several, among the replicas of a job."""

import dataclasses
from collections.abc import Mapping, Sequence

from components.train.backends.probe import VISIBLE
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.rules import most_gpus
from trainer.base.errors import UserError

_Who = tuple[str, int]  # A replica's role and its index among those of the role.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A machine, and the replicas that run on it."""

    name: str  # For people.
    cores: int  # To divide; cores are shared when there are fewer than replicas.
    gpus: Sequence[str]  # Ids as CUDA_VISIBLE_DEVICES has them.
    replicas: Sequence[_Who]  # That run there.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Division:
    """Who gets what of a machine."""

    threads: int  # Of each replica.
    gpus: Mapping[_Who, tuple[str, ...]] | None  # Ids of the GPUs of each replica; None where the machine has none.
    notes: tuple[str, ...]  # The same in words.

    def env(self, role: str, index: int) -> dict[str, str]:
        """Variables that keep a replica to its part."""
        env = {"TRAINER_THREADS": str(self.threads)}
        if self.gpus is not None:
            env[VISIBLE] = ",".join(self.gpus[role, index])
        return env


def divide(cluster: Cluster, *, cores: int, gpus: Sequence[str]) -> Division:
    """Divides this machine among all replicas, as `divide_all` does."""
    (division,) = divide_all(cluster, [Part(name="this machine", cores=cores, gpus=gpus, replicas=cluster.members)])
    return division


def divide_all(cluster: Cluster, parts: Sequence[Part]) -> list[Division]:
    """Gives each replica that computes an equal part of its machine's cores, and each the GPUs that its pool asks for.

    Parameter servers only add numbers up, so they are given no cores of their own. If no pool asks for GPUs, those that
    there are go evenly to the replicas that can train on them; all get as many, as those that train together must.
    A machine that has some GPUs, but fewer than are asked for, is refused.
    """
    asks = any(pool.gpus for pool in cluster.pools.values())
    most = {role: most_gpus(cluster.strategy, role) for role in cluster.pools}
    # The chief of parameter servers and an evaluator may have machines that are not like the others.
    training = [part for part in parts if any(most[role] and role != "evaluator" for role, _ in part.replicas)]
    alike = min(_even(part, most) for part in training)
    divisions = []
    for part in parts:
        wanted = {who: int(min(cluster.pools[who[0]].gpus if asks else alike, most[who[0]])) for who in part.replicas}
        if not asks and ("evaluator", 0) in wanted:
            wanted["evaluator", 0] = 0
            wanted["evaluator", 0] = min(1, len(part.gpus) - sum(wanted.values()))
        divisions.append(_divide(part, wanted))
    if asks and cluster.strategy == "multi_worker_mirrored":
        bare = [part.name for part in training if not part.gpus]
        if 0 < len(bare) < len(training):
            raise UserError(
                f"{', '.join(bare)} has no GPU and others have: replicas that compute every step together must be "
                "alike; leave it out, or remove accelerator from the cluster file"
            )
    return divisions


def _even(part: Part, most: Mapping[str, float]) -> int:
    """GPUs of this machine for each replica that trains; one is left to the evaluator where there are enough."""
    trainers = sum(most[role] > 0 and role != "evaluator" for role, _ in part.replicas)
    left = len(part.gpus) - (("evaluator", 0) in part.replicas)
    return (left if left >= trainers else len(part.gpus)) // trainers


def _divide(part: Part, wanted: Mapping[_Who, int]) -> Division:
    computing = sum(role != "ps" for role, _ in part.replicas)
    threads, total = max(1, part.cores // max(1, computing)), sum(wanted.values())
    notes = [f"cores: {part.cores}, replicas that compute: {computing}, threads of each: {threads}"]
    if not part.gpus:
        if total:
            notes.append(f"the cluster file asks for {total} GPUs and {part.name} has none: cores compute instead")
        return Division(threads=threads, gpus=None, notes=tuple(notes))
    if total > len(part.gpus):
        wants = ", ".join(f"{role}/{index} {count}" for (role, index), count in wanted.items() if count)
        raise UserError(
            f"the cluster file asks for {total} GPUs ({wants}) and {part.name} has {len(part.gpus)}; lower "
            "accelerator.count, replicas, or a host's slots"
        )
    ids = iter(part.gpus)
    shares = {who: tuple(next(ids) for _ in range(count)) for who, count in wanted.items()}
    notes += [f"{role}/{i} has GPU {', '.join(share)}" for (role, i), share in shares.items() if share]
    if unused := list(ids):
        notes.append(f"GPU {', '.join(unused)}: unused, as all that compute have as many as they can use and are alike")
    return Division(threads=threads, gpus=shares, notes=tuple(notes))
