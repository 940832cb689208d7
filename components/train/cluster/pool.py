"""The pools of a cluster file: equal machines with equal GPUs, for the replicas of one role.

Pool.read({"machine": "n1-standard-8", "replicas": 4}).machine == "n1-standard-8"
"""

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from components.train.cluster import machines
from components.train.cluster.machines import GPU_TYPES, MACHINES
from components.train.cluster.validation import Model, Name, number

VERTEX = ("vertex",)


@dataclasses.dataclass(frozen=True)
class By:
    """The back ends that heed a key, where not all do."""

    back_ends: tuple[str, ...]


def _offers(names: Iterable[str], example: str) -> Any:
    """Names that an editor offers."""
    return Field(json_schema_extra={"enum": sorted(names)}, examples=[example])


GpuType = Annotated[Name, AfterValidator(machines.check_gpu), _offers(GPU_TYPES, "NVIDIA_TESLA_T4")]
MachineType = Annotated[Name, AfterValidator(machines.check_machine), _offers(MACHINES, "n1-standard-16")]


class Accelerator(Model):
    """The GPUs of one machine."""

    type: Annotated[GpuType, By(VERTEX)]
    """GPU type, as Vertex AI calls it."""
    count: number(1, 16) = 1
    """GPUs of each machine; every machine type has its own allowed counts."""


class MachineSpec(Model):
    """A machine and its GPUs."""

    machine: MachineType
    """Machine type."""
    accelerator: Accelerator | None = None
    """GPUs of each replica; none without it."""

    @model_validator(mode="after")
    def _is_offered(self) -> Self:
        if self.machine:
            machines.check_gpus(self.machine, self.accelerator.type if self.accelerator else "", self.gpus)
        return self

    @property
    def gpus(self) -> int:
        """GPUs of each replica."""
        return self.accelerator.count if self.accelerator else 0

    @property
    def shape(self) -> str:
        """The machine and its GPUs, for people."""
        gpus = f" with {self.gpus} {self.accelerator.type}" if self.accelerator else ""
        return f"{self.machine}{gpus}"


class Pool(MachineSpec):
    """Equal replicas of one role."""

    machine: Annotated[MachineType | None, By(VERTEX)] = None
    """Machine type; only Vertex AI needs one."""
    replicas: number(1, 1000) = 1
    """How many; exactly 1 of chief and evaluator."""
    alternatives: Annotated[tuple[MachineSpec, ...], By(VERTEX)] = ()
    """What to take, in this order, when Vertex AI has none of these machines."""

    def choice(self, k: int) -> Self:
        """Returns the pool on its k-th machines, or the last if it has fewer."""
        spec = [self, *self.alternatives][: k + 1][-1]
        return self.model_copy(update={"machine": spec.machine, "accelerator": spec.accelerator, "alternatives": ()})


class Disk(Model):
    """Boot disk of each replica."""

    type: Literal["pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-ssd"
    """Kind of disk."""
    size_gb: number(100, 64_000) = 100
    """Size in GB."""
