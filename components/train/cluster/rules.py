"""What the pools of a cluster must keep to, beyond what each key says by itself.

check(keys)  # refuses a parameter server where all train together, a GPU that nobody would compute on, ...
most_gpus("parameter_server", "worker") == 1
"""

import math

from common.errors import UserError, about
from components.train.cluster import machines
from components.train.cluster.keys import Keys
from components.train.cluster.machines import Places

FLEX_START_TIMEOUT_S = 7 * 86_400


def most_gpus(strategy: str, role: str) -> float:
    """How many GPUs a replica can compute on, which may be all that there are.

    TensorFlow's worker of a parameter-server job fails in its first step if it has several; the chief there hands out
    the work, and parameter servers only add numbers up.
    """
    if strategy == "parameter_server":
        return {"chief": 0, "ps": 0}.get(role, 1)
    return 1 if strategy == "one_device" or role == "evaluator" else math.inf


def check(keys: Keys) -> None:
    """Refuses pools that do not fit the strategy, machines that are not offered, and GPUs that nobody computes on.

    What stands as alternatives has to keep to the same.
    """
    _check_roles(keys)
    first, *others = keys.choices
    _check_machines(first)
    for k, choice in enumerate(others):
        with about(f"alternatives[{k}]"):
            _check_machines(choice)


def _check_machines(keys: Keys) -> None:
    for role, pool in keys.pools.items():
        gpu = pool.accelerator.type if pool.accelerator else None
        machines.check(Places.of(role), pool.machine, gpu, pool.gpus)
    _check_gpus(keys)
    _check_disk(keys)
    if keys.scheduling.strategy == "FLEX_START":
        _check_flex_start(keys)


def _check_roles(keys: Keys) -> None:
    if keys.chief.replicas != 1:
        raise UserError(f"chief.replicas: {keys.chief.replicas}, but a job has 1 chief; put the others under worker")
    if keys.evaluator and keys.evaluator.replicas != 1:
        raise UserError(f"evaluator.replicas: {keys.evaluator.replicas}, but a job has at most 1; write 1")
    if keys.strategy == "parameter_server":
        for role in ("ps", "worker"):
            if role not in keys.pools:
                raise UserError(
                    f"{role}: missing, but parameter_server needs at least 1; add '{role}: {{replicas: 1}}', "
                    "or write 'strategy: multi_worker_mirrored' and no ps"
                )
    elif keys.ps:
        raise UserError(f"ps: {keys.strategy} has none; remove ps, or write 'strategy: parameter_server'")
    elif keys.worker and keys.strategy != "multi_worker_mirrored":
        raise UserError(f"worker: {keys.strategy} has none; remove worker, or write 'strategy: multi_worker_mirrored'")


def _check_gpus(keys: Keys) -> None:
    for role, pool in keys.pools.items():
        most = most_gpus(keys.strategy, role)
        if role == "evaluator" or pool.gpus <= most:  # What an evaluator has too many of does no harm.
            continue
        place = f"{role}.accelerator: {pool.gpus} GPUs"
        if not most:
            raise UserError(
                f"{place}, but the {role} of a parameter_server job computes nothing; take a machine without GPUs"
            )
        if keys.strategy == "one_device":
            raise UserError(f"{place}, but one_device computes on 1; write 'strategy: mirrored', or 'count: 1'")
        raise UserError(
            f"{place}, but the worker of a parameter_server job computes on 1; write 'count: 1' and more replicas"
        )
    if keys.worker and keys.strategy == "multi_worker_mirrored" and keys.worker.gpus != keys.chief.gpus:
        raise UserError(
            f"worker.accelerator: {keys.worker.gpus} GPUs, and the chief has {keys.chief.gpus}; replicas that compute "
            "every step together need equal numbers, so write the same accelerator for both"
        )


def _check_disk(keys: Keys) -> None:
    """A disk that is not asked for is the machine's own; what is asked for must be one that all boot from."""
    for role, pool in keys.pools.items():
        disks = machines.offered()[pool.machine].boot_disks if pool.machine else ()
        if keys.disk and disks and keys.disk.type not in disks:
            raise UserError(
                f"disk.type: {role}'s {pool.machine} does not boot from {keys.disk.type} (allowed: {', '.join(disks)}); "
                "write one that all machines boot from, or remove disk"
            )


def _check_flex_start(keys: Keys) -> None:
    """Source: Vertex AI's page on Dynamic Workload Scheduler."""
    place, instead = "scheduling.strategy: FLEX_START", "write SPOT or STANDARD"
    shapes = {role: (pool.machine, pool.accelerator) for role, pool in keys.pools.items()}
    for role, shape in shapes.items():
        if shape != shapes["chief"]:
            raise UserError(f"{place} needs the same machine in every pool, and {role} differs; {instead}")
    gpu = keys.chief.accelerator
    lent = sorted({row["accelerator"] for row in machines.rows() if row["flex_start"] == "yes"})
    if not gpu or gpu.type not in lent:
        what = gpu.type if gpu else "none"
        raise UserError(f"{place} needs GPUs, one of {', '.join(lent)}, and the chief has {what}; {instead}")
    if (keys.scheduling.timeout_s or 0) > FLEX_START_TIMEOUT_S:
        raise UserError("scheduling.timeout: FLEX_START lends machines for at most 7 days; write 7d or less")
