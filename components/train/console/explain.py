"""What a cluster means in full, for people: `python -m components.train --cluster X --explain`.

Synopsis:

    explain(source, cluster, specs, region="us-central1")
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from components.train.backends.cluster_spec import misnamed, vertex_environments
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
_FIRST_PORT = 10_001
_PLAIN_WIDTH = 200


def explain(source: Source, cluster: Cluster, specs: Sequence[Mapping[str, Any]], region: str) -> None:
    """Prints it to standard output: with colours on a terminal, plain text elsewhere.

    Args:
      source: What the cluster was read from.
      cluster: What it says.
      specs: The worker pools on Vertex AI; empty if not every pool names a machine.
      region: Where they would be.
    """
    plain = {"soft_wrap": True, "markup": False, "highlight": False}  # What users wrote may hold brackets.
    console = Console(**plain)
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH, **plain)
    console.print(f"{source.name}: {source.kind}")
    console.print(f"strategy {cluster.strategy}: {_MEANING[cluster.strategy]}")
    schedule = cluster.scheduling
    limit = f"told to save and end after {schedule.timeout_s} s" if schedule.timeout_s else "no time limit of its own"
    console.print(f"scheduling {schedule.strategy}, {limit}, at most {schedule.max_restarts} restarts after errors")
    if cluster.disk:
        console.print(f"disk of each replica: {cluster.disk.size_gb} GB {cluster.disk.type}")
    _head(console, "Pools")
    console.print(_pools(cluster, boxed=console.is_terminal))
    if source.notes:
        _head(console, "Translated")
        for note in source.notes:
            console.print(f"- {'REPLACED ' if note.changes else ''}{note}")
    if not source.ours:
        _head(console, "The same as a cluster file")
        console.print(yaml.safe_dump(_brief(cluster), sort_keys=False, default_flow_style=None, width=110).rstrip())
    _local(console, cluster)
    _vertex(console, cluster, specs, region)


def _head(console: Console, text: str) -> None:
    console.print(f"\n{text}", style="bold")


def _pools(cluster: Cluster, boxed: bool) -> Table:
    table = Table(box=Table().box if boxed else None, pad_edge=False)
    for name in ("pool", "replicas", "machine", "vCPUs", "memory GB", "GPUs"):
        table.add_column(name, justify="left" if name in ("pool", "machine", "GPUs") else "right", no_wrap=True)
    vcpus, memory_gb, gpus = 0, 0.0, {}
    for role, pool in cluster.pools.items():
        machine = offered()[pool.machine] if pool.machine else None
        vcpus += machine.vcpus * pool.replicas if machine else 0
        memory_gb += machine.memory_gb * pool.replicas if machine else 0
        gpu = pool.accelerator
        if gpu:
            gpus[gpu.type] = gpus.get(gpu.type, 0) + gpu.count * pool.replicas
        table.add_row(
            role,
            str(pool.replicas),
            pool.machine or "this machine",
            str(machine.vcpus) if machine else "",
            f"{machine.memory_gb:g}" if machine else "",
            f"{gpu.count} x {gpu.type}" if gpu else "",
        )
    total = ", ".join(f"{count} x {gpu}" for gpu, count in gpus.items()) or "none"
    table.add_section()
    table.add_row("in all", str(cluster.replicas), "", str(vcpus or ""), f"{memory_gb:g}" if vcpus else "", total)
    return table


def _brief(cluster: Cluster) -> dict[str, Any]:
    """The cluster file without what is the default anyway."""
    values = cluster.to_dict()
    for role, pool in cluster.pools.items():
        if pool.replicas == 1 and role in ("chief", "evaluator"):
            del values[role]["replicas"]
    values["scheduling"] = {"timeout": timeout} if (timeout := values["scheduling"].get("timeout")) else {}
    return {key: value for key, value in values.items() if value or key in cluster.pools}


def _local(console: Console, cluster: Cluster) -> None:
    _head(console, "On this machine (--backend process)")
    if cluster.replicas == 1:
        console.print("one process; TF_CONFIG is not set")
        return
    program = Program(command=(), env={}, job_dir="", reports=True)
    division = divide(cluster, cores=usable_cores(), gpus=())
    plan = plan_processes(cluster, program, log_dir="", ports=itertools.count(_FIRST_PORT), division=division)
    console.print(f"{cluster.replicas} processes; the ports are examples")
    _configs(console, "TF_CONFIG", {replica.name: replica.env["TF_CONFIG"] for replica in plan.replicas})


def _vertex(console: Console, cluster: Cluster, specs: Sequence[Mapping[str, Any]], region: str) -> None:
    _head(console, f"On Vertex AI in {region} (--backend vertex; tables of {AS_OF})")
    if not specs:
        roles = [role for role, pool in cluster.pools.items() if not pool.machine]
        console.print(f"not without a machine type; add for example 'machine: n1-standard-4' to {', '.join(roles)}")
        return
    for text in quota_warnings(cluster, region):
        console.print(f"- WARNING {text}")
    environments = dict(vertex_environments(cluster))
    if cluster.replicas == 1:
        console.print("TF_CONFIG is not set for a single replica")
    else:
        _configs(console, "TF_CONFIG", {name: each["TF_CONFIG"] for name, each in environments.items()})
    if wrong := misnamed(cluster):
        console.print(wrong)
    _configs(console, "CLUSTER_SPEC", {name: each["CLUSTER_SPEC"] for name, each in environments.items()})
    console.print("worker_pool_specs:")
    console.print(json.dumps(list(specs), indent=2))


def _configs(console: Console, variable: str, texts: Mapping[str, str]) -> None:
    """One variable of all replicas: what they have in common once, then the task of each."""
    values = {name: json.loads(text) for name, text in texts.items()}
    common = {key: value for key, value in next(iter(values.values())).items() if key != "task"}
    console.print(f'{variable} = {json.dumps(common)[:-1]}, "task": TASK}} with the TASK of')
    for name, value in values.items():
        console.print(f"  {name:<12}{json.dumps(value['task'])}")
