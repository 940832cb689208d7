"""What a cluster means in full, for people: `python -m components.train --cluster X --explain`."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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

_MEANING = {
    "one_device": "one replica trains on one device",
    "mirrored": "one replica trains on all GPUs of its machine, every step together",
    "multi_worker_mirrored": "chief and workers compute every step together and add up their gradients",
    "parameter_server": "workers train each at its own pace on variables that the parameter servers hold; the chief "
    "hands out the work",
}


def explain(source: Source, cluster: Cluster, specs: Sequence[Mapping[str, Any]], region: str) -> None:
    """Prints it to standard output; `specs` are the worker pools on Vertex AI, none if not every pool names a machine."""
    print(f"{source.name}: {source.kind}")
    print(f"strategy {cluster.strategy}: {_MEANING[cluster.strategy]}")
    schedule = cluster.scheduling
    limit = f"told to save and end after {schedule.timeout_s} s" if schedule.timeout_s else "no time limit of its own"
    print(f"scheduling {schedule.strategy}, {limit}, at most {schedule.max_restarts} restarts after errors")
    if cluster.disk:
        print(f"disk of each replica: {cluster.disk.size_gb} GB {cluster.disk.type}")
    print("\nPools")
    for row in _pools(cluster):
        print("{:<10} {:>8}  {:<20} {:>6} {:>10}  {}".format(*row).rstrip())
    if source.notes:
        print("\nTranslated")
        for note in source.notes:
            print(f"- {'REPLACED ' if note.changes else ''}{note}")
    if not source.ours:
        print("\nThe same as a cluster file")
        brief = cluster.model_dump(exclude_none=True, exclude_defaults=True)
        print(yaml.safe_dump(brief, sort_keys=False, default_flow_style=None, width=110).rstrip())
    _local(cluster)
    _vertex(cluster, specs, region)


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


def _local(cluster: Cluster) -> None:
    print("\nOn this machine (--backend process)")
    if cluster.replicas == 1:
        print("one process; TF_CONFIG is not set")
        return
    program = Program(command=(), env={}, job_dir="", reports=True)
    division = divide(cluster, cores=usable_cores(), gpus=())
    plan = plan_processes(cluster, program, log_dir="", ports=itertools.count(FIRST_PORT), division=division)
    print(f"{cluster.replicas} processes; the ports are examples")
    _configs("TF_CONFIG", {replica.name: replica.env["TF_CONFIG"] for replica in plan.replicas})


def _vertex(cluster: Cluster, specs: Sequence[Mapping[str, Any]], region: str) -> None:
    print(f"\nOn Vertex AI in {region} (--backend vertex; tables of {AS_OF})")
    if not specs:
        roles = [role for role, pool in cluster.pools.items() if not pool.machine]
        print(f"not without a machine type; add for example 'machine: n1-standard-4' to {', '.join(roles)}")
        return
    for text in quota_warnings(cluster, region):
        print(f"- WARNING {text}")
    environments = dict(vertex_environments(cluster))
    if cluster.replicas == 1:
        print("TF_CONFIG is not set for a single replica")
    else:
        _configs("TF_CONFIG", {name: each["TF_CONFIG"] for name, each in environments.items()})
    if wrong := misnamed(cluster):
        print(wrong)
    _configs("CLUSTER_SPEC", {name: each["CLUSTER_SPEC"] for name, each in environments.items()})
    print("worker_pool_specs:")
    print(json.dumps(list(specs), indent=2))


def _configs(variable: str, texts: Mapping[str, str]) -> None:
    """One variable of all replicas: what they have in common once, then the task of each."""
    values = {name: json.loads(text) for name, text in texts.items()}
    common = {key: value for key, value in next(iter(values.values())).items() if key != "task"}
    print(f'{variable} = {json.dumps(common)[:-1]}, "task": TASK}} with the TASK of')
    for name, value in values.items():
        print(f"  {name:<12}{json.dumps(value['task'])}")
