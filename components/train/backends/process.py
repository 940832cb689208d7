"""The process back end: one process per replica on this machine.

with planned(cluster, trainer_program(cluster, flags)) as plan:
    exit_code = supervisor.run(plan, output)
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator

from components.train.backends.environment import job_plan, log_place
from components.train.backends.plan import Plan, Replica
from components.train.backends.ports import reserved
from components.train.backends.program import Program
from components.train.backends.resources import Division, divide_here
from components.train.cluster.cluster_file import Cluster


@contextlib.contextmanager
def planned(cluster: Cluster, program: Program, *, log_dir: str | None = None) -> Iterator[Plan]:
    """Yields the plan, with log and status files in `log_place`; its ports are locked until the block ends."""
    log_dir = log_place(program, log_dir)
    division = divide_here(cluster)
    with reserved(cluster.replicas) as ports:
        yield plan_processes(cluster, program, log_dir=log_dir, ports=ports, division=division)


def plan_processes(
    cluster: Cluster, program: Program, *, log_dir: str, ports: Iterable[int], division: Division
) -> Plan:
    """Plans the processes; `ports` has one for each of several replicas, but for the evaluator."""
    left = iter(ports)

    def run(replica: Replica) -> Replica:
        return dataclasses.replace(replica, env={**replica.env, **division.shares[replica.role, replica.index].env})

    return job_plan(
        cluster,
        program,
        "process",
        log_dir=log_dir,
        address=lambda role, index: f"127.0.0.1:{next(left)}",
        run=run,
        notes=division.notes,
    )
