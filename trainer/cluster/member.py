"""Who am I: the role of this replica, from the environment alone. Imports no TensorFlow.

Three launchers, one answer:
  * our own, AI Platform and TFJob: `TF_CONFIG` (the chief may be called `master`, the cluster may hold an evaluator);
  * Vertex AI with several replicas: `CLUSTER_SPEC` of numbered pools, with our `TRAINER_POOL_ROLES` naming them in
    order; Vertex's own TF_CONFIG takes pool 2 for parameter servers whatever the job meant, so it is the second choice;
  * a single replica: neither; it is the chief of a cluster of one.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import pydantic

from common.errors import UserError

ROLES = ("chief", "worker", "ps", "evaluator")
POOL_ROLES = "TRAINER_POOL_ROLES"
POOL_GPUS = "TRAINER_POOL_GPUS"  # how many the cluster file gives each replica of the pool
# Least number of threads between operations in a server of TensorFlow. A call holds one until its
# operations are done, and they need others: with one, TensorFlow's own number on a machine of one
# core, both wait for ever.
SERVER_THREADS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """This replica and the others."""

    role: str  # of `ROLES`
    index: int  # among the replicas of its role, from 0
    # `host:port` of the training cluster by role, empty for a single replica: it trains without a
    # server. Evaluators never stand in it: TensorFlow's parameter-server strategy waits for ever
    # for one that does (tensorflow#46169).
    addresses: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """`worker-1`, as files are named."""
        return f"{self.role}-{self.index}"

    @property
    def everyone(self) -> dict[str, str]:
        """Addresses by name of all replicas of the cluster; the leader, the chief or else worker 0, comes first."""
        return {
            f"{role}-{i}": address
            for role, hosts in self.addresses.items()
            for i, address in enumerate(hosts)
        }

    @property
    def others(self) -> dict[str, str]:
        """Addresses by name of the other replicas, the leader first if it is one of them."""
        return {name: address for name, address in self.everyone.items() if name != self.name}

    @property
    def is_chief(self) -> bool:
        """Whether this replica saves, exports and decides: the chief, or worker 0 where there is no chief."""
        return self.role == "chief" or (
            self.role == "worker" and self.index == 0 and "chief" not in self.addresses
        )

    @property
    def readers_here(self) -> int:
        """Number of replicas that read the training split on the machine of this one."""
        hosts = {name: address.rsplit(":", 1)[0] for name, address in self.everyone.items()}
        readers = [host for name, host in hosts.items() if not name.startswith("ps-")]
        return max(1, readers.count(hosts.get(self.name, "")))

    @property
    def default_strategy(self) -> str:
        """What the cluster's shape asks for when no strategy is named."""
        if "ps" in self.addresses:
            return "parameter_server"
        return "multi_worker_mirrored" if self.addresses else "one_device"


class _Task(pydantic.BaseModel):
    type: str = "chief"
    index: int = pydantic.Field(0, ge=0, lt=10**6)


class _Spec(pydantic.BaseModel):
    cluster: dict[str, tuple[Annotated[str, pydantic.Field(pattern=r"^\S+:\d{1,5}$")], ...]] = {}
    task: _Task = _Task()


def from_environment(environ: Mapping[str, str], *, sync: bool = False) -> Member:
    """Returns the member that `environ` describes; with `sync`, of a cluster without its parameter servers."""
    variable, roles = "TF_CONFIG", {"master": "chief"} | {role: role for role in ROLES}
    if environ.get("CLUSTER_SPEC") and environ.get(POOL_ROLES):
        variable = "CLUSTER_SPEC"
        roles = {f"workerpool{i}": role for i, role in enumerate(environ[POOL_ROLES].split(","))}
    try:
        spec = _Spec.model_validate_json(environ.get(variable) or "{}")
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or "it"
        raise UserError(
            f"{variable}: {key} cannot be {problem['input']!r:.80}: {problem['msg']}"
        ) from None
    role, index = roles.get(spec.task.type), spec.task.index
    if role not in ROLES:
        raise UserError(f"{variable}: task type {spec.task.type!r} is none of {', '.join(roles)}")
    cluster = {roles[key]: hosts for key, hosts in spec.cluster.items() if key in roles}
    apart = {"evaluator", "ps"} if sync else {"evaluator"}
    addresses = {key: cluster[key] for key in ROLES if key not in apart and cluster.get(key)}
    if addresses and role not in apart and index >= len(addresses.get(role, ())):
        raise UserError(f"{variable}: task {role}/{index} is not in the cluster {addresses}")
    return Member(
        role=role, index=index, addresses=addresses if sum(map(len, addresses.values())) > 1 else {}
    )
