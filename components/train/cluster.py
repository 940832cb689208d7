"""The cluster file: which machines a training job runs on, and how many of each.

Synopsis:

    cluster = Cluster.load("clusters/local-ps.yaml")
    for role, pool in cluster.pools.items(): ...
    Cluster.from_json(cluster.to_json()) == cluster
"""

from __future__ import annotations

import dataclasses
import json
import re
import reprlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from components.train.strict_yaml import parse
from trainer.cluster import ROLES
from trainer.errors import UserError, unknown

STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "parameter_server")
SCHEDULING_STRATEGIES = ("STANDARD", "SPOT", "FLEX_START")
DISK_TYPES = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
DISK_SIZES_GB = (100, 64_000)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """The GPUs of one machine: a Vertex accelerator type such as `NVIDIA_TESLA_T4`, and how many."""

    type: str
    count: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """Equal replicas of one role.

    Attributes:
      machine: Machine type; only Vertex needs one.
      replicas: How many, at least 1.
      accelerator: GPUs of each replica.
    """

    machine: str | None = None
    replicas: int = 1
    accelerator: Accelerator | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disk:
    """Boot disk of each replica."""

    type: str = "pd-ssd"
    size_gb: int = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scheduling:
    """How machines are obtained, and for how long.

    Attributes:
      strategy: One of `SCHEDULING_STRATEGIES`.
      timeout_s: The job's time limit; None leaves it to the back end.
      max_restarts: Bound on restarts after errors and, counted apart, after preemptions.
    """

    strategy: str = "STANDARD"
    timeout_s: int | None = None
    max_restarts: int = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a training job runs on.

    Raises:
      UserError: If the pools do not fit the strategy.
    """

    strategy: str
    chief: Pool
    worker: Pool | None = None
    ps: Pool | None = None
    evaluator: Pool | None = None
    disk: Disk | None = None
    scheduling: Scheduling = Scheduling()

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UserError(f"strategy: {unknown('strategy', self.strategy, STRATEGIES)}")
        if self.chief.replicas != 1:
            raise UserError(
                f"chief.replicas: {self.chief.replicas}, but a job has 1 chief; put the others under worker"
            )
        if self.evaluator and self.evaluator.replicas != 1:
            raise UserError(f"evaluator.replicas: {self.evaluator.replicas}, but a job has at most 1; write 1")
        if self.strategy == "parameter_server":
            for role in ("ps", "worker"):
                if role not in self.pools:
                    raise UserError(
                        f"{role}: missing, but parameter_server needs at least 1; add '{role}: {{replicas: 1}}', "
                        "or write 'strategy: multi_worker_mirrored' and no ps"
                    )
        elif self.ps:
            raise UserError(f"ps: {self.strategy} has none; remove ps, or write 'strategy: parameter_server'")
        elif self.worker and self.strategy != "multi_worker_mirrored":
            raise UserError(
                f"worker: {self.strategy} has none; remove worker, or write 'strategy: multi_worker_mirrored'"
            )

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools that exist, in the order chief, worker, ps, evaluator."""
        return {role: pool for role in ROLES if (pool := getattr(self, role))}

    @property
    def replicas(self) -> int:
        """Replicas of all pools together."""
        return sum(pool.replicas for pool in self.pools.values())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a cluster file.

        Raises:
          UserError: If it is missing, not YAML, or says something that cannot be; names file, place, value and repair.
        """
        path = Path(path)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise unknown("cluster file", str(path), map(str, path.parent.glob("*.yaml"))) from None
        except OSError as error:
            raise UserError(f"cluster file {path}: {error.strerror}") from None
        try:
            return cls._read(parse(data))
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; whole numbers that became floats on the way are integers again.

        Raises:
          UserError: As `load` does.
        """
        try:
            return cls._read(json.loads(text))
        except (UserError, ValueError, RecursionError) as error:
            raise UserError(f"cluster as JSON: {error}") from None

    def to_json(self) -> str:
        """One line of JSON in the form of the cluster file, every default filled in."""
        values = dataclasses.asdict(self, dict_factory=lambda items: {k: v for k, v in items if v is not None})
        if timeout_s := values["scheduling"].pop("timeout_s", None):
            values["scheduling"]["timeout"] = f"{timeout_s}s"
        return json.dumps(values)

    @classmethod
    def _read(cls, data: Any) -> Self:
        if data is None:
            raise UserError("empty; it needs at least 'strategy: one_device' and 'chief: {}'")
        values = _fields(data, "top level", [field.name for field in dataclasses.fields(cls)])
        for key, example in (
            ("strategy", f"'strategy: one_device' (known: {', '.join(STRATEGIES)})"),
            ("chief", "'chief: {}'"),
        ):
            if key not in values:
                raise UserError(f"{key}: missing; add {example}")
        parts = {role: _pool(values[role], role) for role in ROLES if role in values}
        if "disk" in values:
            parts["disk"] = _disk(values["disk"])
        if "scheduling" in values:
            parts["scheduling"] = _scheduling(values["scheduling"])
        return cls(strategy=_text(values["strategy"], "strategy"), **parts)


def _pool(value: Any, role: str) -> Pool:
    values = _fields(value, role, ("machine", "replicas", "accelerator"))
    if "machine" in values:
        values["machine"] = _text(values["machine"], f"{role}.machine")
    if "replicas" in values:
        values["replicas"] = _integer(values["replicas"], f"{role}.replicas", 1)
    if "accelerator" in values:
        where = f"{role}.accelerator"
        gpus = _fields(values["accelerator"], where, ("type", "count"))
        if "type" not in gpus:
            raise UserError(f"{where}.type: missing; add for example 'type: NVIDIA_TESLA_T4', or remove accelerator")
        count = _integer(gpus.get("count", 1), f"{where}.count", 1)
        values["accelerator"] = Accelerator(type=_text(gpus["type"], f"{where}.type"), count=count)
    return Pool(**values)


def _disk(value: Any) -> Disk:
    values = _fields(value, "disk", ("type", "size_gb"))
    if "type" in values:
        values["type"] = _one_of(values["type"], "disk.type", DISK_TYPES)
    if "size_gb" in values:
        values["size_gb"] = _integer(values["size_gb"], "disk.size_gb", *DISK_SIZES_GB)
    return Disk(**values)


def _scheduling(value: Any) -> Scheduling:
    values = _fields(value, "scheduling", ("strategy", "timeout", "max_restarts"))
    if "strategy" in values:
        values["strategy"] = _one_of(values["strategy"], "scheduling.strategy", SCHEDULING_STRATEGIES)
    if "max_restarts" in values:
        values["max_restarts"] = _integer(values["max_restarts"], "scheduling.max_restarts", 0)
    if "timeout" in values:
        values["timeout_s"] = _duration(values.pop("timeout"), "scheduling.timeout")
    return Scheduling(**values)


def _fields(value: Any, where: str, allowed: Collection[str]) -> dict[str, Any]:
    """A copy of the mapping `value`, if it is one and has no other keys than `allowed`."""
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: {_show(value)} is not a mapping; write 'key: value' of {', '.join(allowed)}")
    for key in value:
        if key not in allowed:
            raise UserError(f"{where}: {unknown('key', str(key), allowed)}")
    return dict(value)


def _integer(value: Any, where: str, low: int, high: int | None = None) -> int:
    whole = not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    )
    if not whole or value < low or (high is not None and value > high):
        bounds = f"from {low} to {high}" if high else f"of at least {low}"
        raise UserError(f"{where}: {_show(value)} is not a whole number {bounds}; write for example {max(low, 1)}")
    return int(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where}: {_show(value)} is not a name; write a word, or remove the line")
    return value


def _one_of(value: Any, where: str, allowed: Collection[str]) -> str:
    if _text(value, where) not in allowed:
        raise UserError(f"{where}: {unknown('value', value, allowed)}")
    return value


def _duration(value: Any, where: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", value) if isinstance(value, str) else None
    if not match:
        raise UserError(
            f"{where}: {_show(value)} is not a duration; write a number with s, m, h or d, as in '90s', '30m', '1h'"
        )
    return int(match[1]) * _SECONDS[match[2]]


def _show(value: Any) -> str:
    return "nothing" if value is None else reprlib.repr(value)
