"""The role of this replica and the addresses of the others, from environment variables alone.

Three kinds of launchers are understood:
- Our own, AI Platform and TFJob set `TF_CONFIG`. The chief may be called `master`, and the cluster
  may contain an evaluator.
- Vertex AI, with several replicas, sets `CLUSTER_SPEC` with numbered pools, whose roles our
  `TRAINER_POOL_ROLES` lists in order. Vertex AI also sets a TF_CONFIG, but that always takes the
  third pool for parameter servers, so it is used only without `TRAINER_POOL_ROLES`.
- A single replica has neither; it is the chief of a cluster of one.

Imports no TensorFlow.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated

import pydantic

from common.errors import UserError

ROLES = ("chief", "worker", "ps", "evaluator")
POOL_ROLES = "TRAINER_POOL_ROLES"
POOL_GPUS = "TRAINER_POOL_GPUS"  # Number of GPUs of each replica, by the cluster file.
# Least number of inter-op threads in a server of TensorFlow. A call holds a thread until its
# operations are done, and these need other threads. With only one, TensorFlow's default on a
# machine of one core, both wait for ever.
SERVER_THREADS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Member:
    """Role of this replica, and addresses of the cluster."""

    role: str  # One of `ROLES`.
    index: int  # Number among the replicas of this role, from 0.
    # Addresses `host:port` of the training cluster, by role. Empty for a single replica, which
    # trains without a server. Evaluators are left out: TensorFlow's parameter-server strategy would
    # wait for them for ever (tensorflow#46169).
    addresses: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """Name of this replica, such as `worker-1`; its files are named so too."""
        return f"{self.role}-{self.index}"

    @property
    def everyone(self) -> dict[str, str]:
        """Addresses of all replicas but evaluators, by name, the leader first.

        The leader is the chief or, without one, worker 0. Empty for a single replica.
        """
        return {
            f"{role}-{i}": address
            for role, hosts in self.addresses.items()
            for i, address in enumerate(hosts)
        }

    @property
    def others(self) -> dict[str, str]:
        """Addresses of the other replicas, by name; the leader comes first if it is one of them."""
        return {name: address for name, address in self.everyone.items() if name != self.name}

    @property
    def is_chief(self) -> bool:
        """True if this replica saves, exports and decides.

        That is the chief or, in a cluster without one, worker 0.
        """
        return self.role == "chief" or (
            self.role == "worker" and self.index == 0 and "chief" not in self.addresses
        )

    @property
    def readers_here(self) -> int:
        """Number of replicas, this one included, that read the training split on this machine.

        Parameter servers do not count. It is at least 1.
        """
        hosts = {name: address.rsplit(":", 1)[0] for name, address in self.everyone.items()}
        readers = [host for name, host in hosts.items() if not name.startswith("ps-")]
        return max(1, readers.count(hosts.get(self.name, "")))

    @property
    def default_strategy(self) -> str:
        """Name of the strategy to use if no flag names one, by the cluster's shape.

        It is `parameter_server` in a cluster with parameter servers, `multi_worker_mirrored` in any
        other, and `one_device` for a single replica.
        """
        if "ps" in self.addresses:
            return "parameter_server"
        return "multi_worker_mirrored" if self.addresses else "one_device"


class _Task(pydantic.BaseModel):
    type: str = "chief"
    index: int = pydantic.Field(default=0, ge=0, lt=10**6)


class _Spec(pydantic.BaseModel):
    cluster: dict[str, tuple[Annotated[str, pydantic.Field(pattern=r"^\S+:\d{1,5}$")], ...]] = {}
    task: _Task = _Task()


def from_environment(environ: Mapping[str, str], *, sync: bool = False) -> Member:
    """Returns this replica as environment variables describe it.

    Args:
      environ: Environment variables, of which `CLUSTER_SPEC` counts if `TRAINER_POOL_ROLES` is set
        too, and otherwise `TF_CONFIG`.
      sync: Leaves the parameter servers out of the cluster.

    Returns:
      This replica. It has no addresses if it is alone, not counting evaluators and, with `sync`,
      parameter servers.

    Raises:
      UserError: If a variable has a wrong form, an unknown role, or a replica that is not in the
        cluster.
    """
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
