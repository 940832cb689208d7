"""The machines that Vertex AI offers for training, and the GPUs that each takes.

offered()["n1-standard-8"].gpus["NVIDIA_TESLA_T4"] == (1, 2, 4)
check(Places.of("worker"), "n1-standard-8", "NVIDIA_TESLA_T4", 3)  # refused, with the counts that are offered
SUCCESSORS["NVIDIA_TESLA_K80"] == "NVIDIA_TESLA_T4"
"""

import csv
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from common.errors import UserError, unknown

# What replaces the machine type and the GPUs that are no longer offered.
SUCCESSORS = {
    "n1-highcpu-8": "n1-standard-8",
    "NVIDIA_TESLA_K80": "NVIDIA_TESLA_T4",
    "NVIDIA_TESLA_P100": "NVIDIA_TESLA_T4",
}
_TABLE = Path(__file__).parent / "tables" / "machines.csv"
_REFUSED = {
    "TPU": "is a TPU, which is out of scope here; use GPUs, as of g2-standard-12",
    "reservation": "needs a reservation, which a cluster file cannot name; use a4-highgpu-8g",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine type."""

    name: str
    vcpus: int
    memory_gb: float
    gpus: Mapping[str, tuple[int, ...]]  # By GPU type, the counts in which it is offered with this machine.
    carries_gpus: bool  # Whether it is never without them.
    boot_disks: tuple[str, ...]  # That it boots from; the first is what it gets where none is asked for.

    @property
    def family(self) -> str:
        """`n1` of `n1-standard-8`."""
        return self.name.partition("-")[0]


class Places(NamedTuple):
    """Where a file names a pool, its machine and its GPUs; for messages."""

    pool: str
    machine: str
    gpus: str

    @classmethod
    def of(cls, role: str) -> Self:
        """Those of a pool in a cluster file."""
        return cls(role, f"{role}.machine", f"{role}.accelerator")


@functools.cache
def rows() -> tuple[dict[str, str], ...]:
    """The rows of the table of machines."""
    with open(_TABLE, encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


@functools.cache
def offered() -> Mapping[str, Machine]:
    """Machine types by name, with the GPUs that are offered."""
    by_name: dict[str, list[dict[str, str]]] = {}
    for row in rows():
        if not row["not_offered"]:
            by_name.setdefault(row["machine_type"], []).append(row)
    return {
        name: Machine(
            name=name,
            vcpus=int(own[0]["vcpus"]),
            memory_gb=float(own[0]["memory_gb"]),
            gpus={
                row["accelerator"]: tuple(map(int, row["allowed_counts"].split(";")))
                for row in own
                if row["accelerator"]
            },
            carries_gpus=all(row["accelerator"] for row in own),
            boot_disks=tuple(own[0]["boot_disks"].split(";")),
        )
        for name, own in by_name.items()
    }


@functools.cache
def gpu_types() -> tuple[str, ...]:
    """Those offered with some machine."""
    return tuple(sorted({gpu for machine in offered().values() for gpu in machine.gpus}))


def check(places: Places, machine: str | None, gpu: str | None, count: int) -> None:
    """Refuses a machine type, a GPU type or a combination that is not offered; each may be None."""
    if machine:
        _check_name(places.machine, "machine type", machine, offered())
    if gpu:
        _check_name(f"{places.gpus}.type", "GPU type", gpu, gpu_types())
    if not machine:
        return
    gpus = offered()[machine].gpus
    if not gpu and offered()[machine].carries_gpus:
        ((built_in, (number,)),) = gpus.items()
        raise UserError(
            f"{places.machine}: {machine} always has {number} {built_in}; add '{places.gpus.rpartition('.')[2]}: "
            f"{{type: {built_in}, count: {number}}}', or take a machine without GPUs"
        )
    if gpu and count not in gpus.get(gpu, ()):
        counts = ", ".join(map(str, gpus.get(gpu, ())))
        allowed = f"allowed: {counts}" if counts else f"it takes {' or '.join(gpus) or 'none'}"
        raise UserError(
            f"{places.pool}: {machine} with {count} {gpu} is not offered ({allowed}); write what is, or another machine"
        )


def _check_name(place: str, what: str, name: str, names: Iterable[str]) -> None:
    if name in names:
        return
    if name in SUCCESSORS:
        raise UserError(f"{place}: {name} is no longer offered; use {SUCCESSORS[name]}")
    reasons = {row[column]: row["not_offered"] for row in rows() for column in ("machine_type", "accelerator")}
    if why := _REFUSED.get("TPU" if name.upper().startswith("TPU") else reasons.get(name, "")):
        raise UserError(f"{place}: {name} {why}")
    # All machine types would not fit in a line: those of its family, or the families.
    known = [each for each in names if each.startswith(f"{name.partition('-')[0]}-")]
    raise UserError(f"{place}: {unknown(what, name, known or {each.partition('-')[0] for each in names})}")
