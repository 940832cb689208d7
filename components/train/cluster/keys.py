"""The keys of a cluster file, each described once: pydantic reads and writes them, and makes the schema for editors.

A key that only some back ends heed names them with `By`; the others say that they ignore it.

    keys = read(Keys, {"strategy": "one_device", "chief": {}})
    for role, pool in keys.pools.items(): ...
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field

from components.train.cluster import machines
from components.train.cluster.checks import Model, Name, number, show
from trainer.cluster.member import ROLES

MAX_REPLICAS = 1000  # Of one pool; nobody means more.
MAX_TIMEOUT_S = 30 * 86_400  # Longer than any job, and what a typing error exceeds.
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Strategy = Literal["one_device", "mirrored", "multi_worker_mirrored", "parameter_server"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
_VERTEX = ("vertex",)


@dataclasses.dataclass(frozen=True)
class By:
    """The back ends that heed a key, where not all do."""

    back_ends: tuple[str, ...]


def seconds(text: str) -> int:
    """Of a duration such as `90s`, `30m`, `1h` or `7d`."""
    return int(text[:-1]) * _SECONDS[text[-1]]


def _duration(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[1-9][0-9]{0,8}[smhd]", value):
        raise ValueError(f"{show(value)} is not a duration; write a number with s, m, h or d, as in '90s', '30m', '1h'")
    if seconds(value) > MAX_TIMEOUT_S:
        raise ValueError(f"{value} is more than {MAX_TIMEOUT_S // 86_400} days; write for example 7d")
    return value


_Duration = Annotated[str, BeforeValidator(_duration), Field(json_schema_extra={"pattern": "^[1-9][0-9]{0,8}[smhd]$"})]


def _offers(names: Callable[[], Iterable[str]], **more: Any) -> Any:
    """Has an editor offer names; the reader leaves it to the owner of the table to check them."""
    return Field(json_schema_extra=lambda schema: schema.update(enum=sorted(names())), **more)


class Accelerator(Model, use_attribute_docstrings=True):
    """The GPUs of one machine."""

    type: Annotated[Name, _offers(machines.gpu_types, examples=["NVIDIA_TESLA_T4"]), By(_VERTEX)]
    """GPU type, as Vertex AI calls it."""
    count: number(1, 16) = 1
    """GPUs of each machine; every machine type has its own allowed counts."""


class Alternative(Model, use_attribute_docstrings=True):
    """Other machines for the same replicas."""

    machine: Annotated[Name, _offers(machines.offered, examples=["n1-standard-16"])]
    """Machine type."""
    accelerator: Accelerator | None = None
    """GPUs of each replica; none without it."""


class Pool(Model, use_attribute_docstrings=True):
    """Equal replicas of one role."""

    machine: Annotated[Name | None, _offers(machines.offered), By(_VERTEX)] = None
    """Machine type; only Vertex AI needs one."""
    replicas: number(1, MAX_REPLICAS) = 1
    """How many; exactly 1 of chief and evaluator."""
    accelerator: Accelerator | None = None
    """GPUs of each replica; none without it."""
    alternatives: Annotated[tuple[Alternative, ...], By(_VERTEX)] = ()
    """What to take, in this order, when Vertex AI has none of these machines."""

    @property
    def shape(self) -> str:
        """The machine and its GPUs, for people."""
        gpus = f" with {self.gpus} {self.accelerator.type}" if self.accelerator else ""
        return f"{self.machine}{gpus}"

    @property
    def gpus(self) -> int:
        """GPUs of each replica."""
        return self.accelerator.count if self.accelerator else 0


class Disk(Model, use_attribute_docstrings=True):
    """Boot disk of each replica."""

    type: Literal["pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-ssd"
    """Kind of disk."""
    size_gb: number(100, 64_000) = 100
    """Size in GB."""


class Scheduling(Model, use_attribute_docstrings=True):
    """How machines are obtained, and for how long."""

    strategy: Annotated[Literal["STANDARD", "SPOT", "FLEX_START"], By(_VERTEX)] = "STANDARD"
    """STANDARD machines stay, SPOT ones are cheap and may be taken away, FLEX_START ones are waited for."""
    timeout: _Duration | None = None
    """Time limit of the job: a number with s, m, h or d, at most 30d; without it the back end's (Vertex AI: 7d)."""
    max_restarts: number(0, 1000) = 5
    """Bound on restarts after errors and, counted apart, after preemptions; of those after Vertex AI's own, too."""

    @property
    def timeout_s(self) -> int | None:
        """The time limit in seconds, if there is one."""
        return seconds(self.timeout) if self.timeout else None


class Keys(Model, use_attribute_docstrings=True):
    """What stands in a cluster file."""

    strategy: Annotated[Strategy, Field(examples=["one_device"])]
    """How replicas train together."""
    chief: Annotated[Pool, Field(examples=[{}])]
    """The replica that saves, exports and decides; exactly 1."""
    worker: Pool | None = None
    """Further replicas that train."""
    ps: Pool | None = None
    """Parameter servers, which hold the variables."""
    evaluator: Pool | None = None
    """Scores every checkpoint beside the training; at most 1."""
    disk: Annotated[Disk | None, By(_VERTEX)] = None
    """Boot disk of each replica on Vertex AI; without it 100 GB of what its machine boots from."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """How machines are obtained, for how long, and how often the job starts again."""

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools that exist, in the order chief, worker, ps, evaluator."""
        return {role: pool for role in ROLES if (pool := getattr(self, role))}

    @property
    def choices(self) -> list[Self]:
        """Each as a cluster of its own: the machines, the first alternatives of all pools, the second ones, ...

        A pool with fewer alternatives than another keeps its last.
        """
        shapes = {role: (pool, *pool.alternatives) for role, pool in self.pools.items()}
        rounds = range(max(map(len, shapes.values())))
        return [self.model_copy(update={role: _taken(own, k) for role, own in shapes.items()}) for k in rounds]

    @property
    def members(self) -> list[tuple[str, int]]:
        """Each replica as its role and its index among those of the role, in the order of the pools."""
        return [(role, index) for role, pool in self.pools.items() for index in range(pool.replicas)]

    @property
    def replicas(self) -> int:
        """Replicas of all pools together."""
        return len(self.members)


def _taken(shapes: Sequence[Any], k: int) -> Pool:
    """A pool, the first of the shapes, on the machines of the k-th or the last."""
    shape = shapes[min(k, len(shapes) - 1)]
    machine = {"machine": shape.machine, "accelerator": shape.accelerator}
    return shapes[0].model_copy(update={**machine, "alternatives": ()})
