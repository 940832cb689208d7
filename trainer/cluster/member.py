"""Who am I: the role of this replica, from the environment alone. Imports no TensorFlow.

Three launchers, one answer:
  * our own, AI Platform and TFJob: `TF_CONFIG` (the chief may be called `master`, the cluster may hold an evaluator);
  * Vertex AI with several replicas: `CLUSTER_SPEC` of numbered pools, with our `TRAINER_POOL_ROLES` naming them in
    order; Vertex's own TF_CONFIG takes pool 2 for parameter servers whatever the job meant, so it is the second choice;
  * a single replica: neither; it is the chief of a cluster of one.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from common import bounded_json
from common.errors import UserError

ROLES = ("chief", "worker", "ps", "evaluator")
POOL_ROLES = "TRAINER_POOL_ROLES"
POOL_GPUS = "TRAINER_POOL_GPUS"  # how many the cluster file gives each replica of the pool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """This replica and the others."""

    role: str  # of `ROLES`
    index: int  # among the replicas of its role, from 0
    # `host:port` of the training cluster by role, empty for a single replica. Evaluators never stand in it: TensorFlow's
    # parameter-server strategy waits for ever for one that does (tensorflow#46169).
    addresses: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """`worker-1`, as files are named."""
        return f"{self.role}-{self.index}"

    @property
    def everyone(self) -> dict[str, str]:
        """Addresses by name of all replicas of the cluster; the leader, the chief or else worker 0, comes first."""
        return {f"{role}-{i}": address for role, hosts in self.addresses.items() for i, address in enumerate(hosts)}

    @property
    def others(self) -> dict[str, str]:
        """Addresses by name of the other replicas, the leader first if it is one of them."""
        return {name: address for name, address in self.everyone.items() if name != self.name}

    @property
    def is_chief(self) -> bool:
        """Whether this replica saves, exports and decides: the chief, or worker 0 where there is no chief."""
        return self.role == "chief" or (self.role == "worker" and self.index == 0 and "chief" not in self.addresses)

    @property
    def readers_here(self) -> int:
        """Replicas that read the training split on the machine of this one."""
        hosts = {role: [a.rsplit(":", 1)[0] for a in self.addresses.get(role, ())] for role in ("chief", "worker")}
        own = hosts.get(self.role, [])[self.index :][:1]
        return max(1, sum(there.count(host) for host in own for there in hosts.values()))

    @property
    def default_strategy(self) -> str:
        """What the cluster's shape asks for when no strategy is named."""
        if self.addresses.get("ps"):
            return "parameter_server"
        return "multi_worker_mirrored" if sum(map(len, self.addresses.values())) > 1 else "one_device"


def from_environment(environ: Mapping[str, str]) -> Member:
    """The member that `environ` describes."""
    if environ.get("CLUSTER_SPEC") and environ.get(POOL_ROLES):
        return _from_pools(_object("CLUSTER_SPEC", environ["CLUSTER_SPEC"]), environ[POOL_ROLES].split(","))
    config = _object("TF_CONFIG", environ.get("TF_CONFIG") or "{}")
    return _member("TF_CONFIG", config.get("cluster") or {}, config.get("task") or {})


def _from_pools(spec: Mapping[str, Any], roles: Sequence[str]) -> Member:
    names = {f"workerpool{i}": role for i, role in enumerate(roles)}
    try:
        cluster = {names[pool]: hosts for pool, hosts in spec["cluster"].items()}
        task = {"type": names[spec["task"]["type"]], "index": spec["task"]["index"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"CLUSTER_SPEC: {error} is missing or not among the pools {', '.join(names)} of {POOL_ROLES}"
        ) from None
    return _member("CLUSTER_SPEC", cluster, task)


def _object(variable: str, text: str) -> dict[str, Any]:
    try:
        value = bounded_json.parse(text)
    except ValueError as error:
        raise UserError(f"{variable} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{variable} is not a JSON object: {text[:80]}")
    return value


def _member(variable: str, cluster: Any, task: Any) -> Member:
    if not isinstance(cluster, dict) or not all(map(_are_addresses, cluster.values())):
        raise UserError(f"{variable}: the cluster is not lists of host:port by role: {json.dumps(cluster)[:80]}")
    if not isinstance(task, dict) or not re.fullmatch(r"\d{1,6}", str(task.get("index", 0))):
        raise UserError(f"{variable}: the task is not a type with an index of at least 0: {json.dumps(task)[:80]}")
    cluster = {"chief" if key == "master" else key: tuple(hosts) for key, hosts in cluster.items()}
    role, index = task.get("type", "chief"), int(task.get("index", 0))
    role = "chief" if role == "master" else role
    if role not in ROLES:
        raise UserError(f"{variable}: task type {role!r} is none of {', '.join(ROLES)}")
    if len(cluster.get("chief", ())) > 1:
        raise UserError(f"{variable}: {len(cluster['chief'])} chiefs in the cluster; there can be one")
    addresses = {key: cluster[key] for key in ROLES if key != "evaluator" and cluster.get(key)}
    if addresses and role != "evaluator" and index >= len(addresses.get(role, ())):
        raise UserError(f"{variable}: task {role}/{index} is not in the cluster {addresses}")
    # A cluster of one needs no addresses: it trains without a server.
    return Member(role=role, index=index, addresses=addresses if sum(map(len, addresses.values())) > 1 else {})


def _are_addresses(hosts: Any) -> bool:
    return isinstance(hosts, list) and all(isinstance(h, str) and re.fullmatch(r"\S+:\d{1,5}", h) for h in hosts)
