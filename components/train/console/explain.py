"""What a cluster means in full, for people: `python -m components.train --cluster X --explain`."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from components.train.backends.cluster_spec import misnamed, vertex_environments
from components.train.backends.probe import FIRST_PORT
from components.train.backends.processes import plan_processes
from components.train.backends.program import Program
from components.train.backends.resources import divide
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.machines import AS_OF, offered
from components.train.cluster.notes import Source
from components.train.cluster.quotas import quota_warnings
from trainer.base.machine import usable_cores

_ROW = "{:<10} {:>8}  {:<20} {:>6} {:>10}  {}"


def explain(source: Source, cluster: Cluster, job: Mapping[str, Any], region: str) -> None:
    """Prints it to standard output; `job` is that of Vertex AI, nothing if not every pool names a machine."""
    from components.templates import templates  # Jinja: a job that is run has no use for it.

    brief = cluster.model_dump(exclude_none=True, exclude_defaults=True)
    found = {
        "pools": [_ROW.format(*row).rstrip() for row in _pools(cluster)],
        "cluster_file": yaml.safe_dump(brief, sort_keys=False, default_flow_style=None, width=110).rstrip(),
        "here": _local(cluster),
        "there": dict(vertex_environments(cluster)),
        "as_of": AS_OF,
        "warnings": quota_warnings(cluster, region),
        "misnamed": misnamed(cluster),
        "job": json.dumps(job, indent=2) if job else "",
        "without_machine": [role for role, pool in cluster.pools.items() if not pool.machine],
    }
    text = templates(__package__).get_template("explain.txt")
    print(text.render(source=source, cluster=cluster, region=region, variable=_variable, **found), end="")


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


def _local(cluster: Cluster) -> dict[str, Mapping[str, str]]:
    """The variables of each replica as a process of this machine."""
    program = Program(command=(), env={}, job_dir="", reports=True)
    division = divide(cluster, cores=usable_cores(), gpus=())
    plan = plan_processes(cluster, program, log_dir="", ports=itertools.count(FIRST_PORT), division=division)
    return {replica.name: replica.env for replica in plan.replicas}


def _variable(name: str, environments: Mapping[str, Mapping[str, str]]) -> str:
    """One variable of all replicas: what they have in common once, then the task of each."""
    values = {replica: json.loads(variables[name]) for replica, variables in environments.items()}
    common = {key: value for key, value in next(iter(values.values())).items() if key != "task"}
    lines = [f"  {replica:<12}{json.dumps(value['task'])}" for replica, value in values.items()]
    return "\n".join([f'{name} = {json.dumps(common)[:-1]}, "task": TASK}} with the TASK of', *lines])
