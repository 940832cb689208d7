"""The machines that Vertex AI offers for training, and the GPUs that each takes.

offered()["n1-standard-8"].gpus["NVIDIA_TESLA_T4"] == (1, 2, 4)
check(Places.of("worker"), "n1-standard-8", "NVIDIA_TESLA_T4", 3)  # refused, with what would do instead
substitute("n1-standard-16", "NVIDIA_TESLA_K80", 4) == ("n1-standard-16", "NVIDIA_TESLA_T4", 4)
"""

import csv
import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from trainer.base.errors import UserError, unknown

AS_OF = "2026-08-22"
# By nearness to those that are gone: T4 goes into the same machines, L4 comes in eights.
_SUCCESSORS = ("NVIDIA_TESLA_T4", "NVIDIA_L4")
_TABLES = Path(__file__).parent / "tables"


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


def table(name: str) -> Iterator[dict[str, str]]:
    """The rows of a shipped table: `machines`, `regions` or `quotas`."""
    with open(_TABLES / f"{name}.csv", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@functools.cache
def offered() -> Mapping[str, Machine]:
    """Machine types by name, with the GPUs that are offered."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in table("machines"):
        if not row["not_offered"]:
            rows.setdefault(row["machine_type"], []).append(row)
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
        for name, own in rows.items()
    }


@functools.cache
def gpu_types() -> tuple[str, ...]:
    """Those offered with some machine."""
    return tuple(sorted({gpu for machine in offered().values() for gpu in machine.gpus}))


@functools.cache
def not_offered() -> Mapping[str, str]:
    """Why each machine type and GPU of the table is not to be had: `TPU`, `reservation` or `gone`."""
    rows = [row for row in table("machines") if row["not_offered"]]
    reasons = {row[column]: row["not_offered"] for row in rows for column in ("machine_type", "accelerator")}
    return {name: why for name, why in reasons.items() if name and name not in {*offered(), *gpu_types()}}


def check(places: Places, machine: str | None, gpu: str | None, count: int) -> None:
    """Refuses a machine type, a GPU type or a combination that is not offered, and names what is; each may be None."""
    if machine:
        _check_machine(places.machine, machine)
    if gpu:
        _check_gpu(f"{places.gpus}.type", machine, gpu, count)
    if not machine:
        return
    found = offered()[machine]
    counts = found.gpus.get(gpu or "", ())
    if not gpu and found.carries_gpus:
        ((built_in, (number,)),) = found.gpus.items()
        raise UserError(
            f"{places.machine}: {machine} always has {number} {built_in}; add '{places.gpus.rpartition('.')[2]}: "
            f"{{type: {built_in}, count: {number}}}', or take a machine without GPUs"
        )
    if gpu and count not in counts:
        allowed, use = f"it takes {' or '.join(found.gpus) or 'none'}", ""
        if counts:
            allowed = f"allowed: {', '.join(map(str, counts))}"
            use = f"{min((each for each in counts if each >= count), default=max(counts))}, or "
        other, gpu_there, number = nearest(machine, gpu, count)
        raise UserError(
            f"{places.pool}: {machine} with {count} {gpu} is not offered ({allowed}); "
            f"use {use}{other} with {number} {gpu_there}"
        )


def substitute(machine: str, gpu: str | None, count: int) -> tuple[str, str | None, int]:
    """The nearest offered machine and GPU to what AI Platform had; what is still offered comes back as it is.

    A machine that is gone is replaced by the smallest of its family that is no smaller, a GPU by as many T4 in the same
    machine; where there are not so many, by the smallest machine with so many T4 or L4 and no fewer processors.
    """
    if not_offered().get(machine) == "gone":
        machine = _no_smaller(machine, lambda each: each.family == machine.partition("-")[0])
    if not_offered().get(gpu or "") != "gone" or machine not in offered():
        return machine, gpu, count
    for successor in _SUCCESSORS:
        if count in offered()[machine].gpus.get(successor, ()):
            return machine, successor, count
        larger = [each for each in _with(successor, count) if each.vcpus >= offered()[machine].vcpus]
        if larger:
            return larger[0].name, successor, count
    return machine, _SUCCESSORS[0], count  # Never offered in such a number; the check says what is.


def without_gpus(machine: str) -> str:
    """The machine itself, or if it always has GPUs the smallest other that is no smaller and boots from its disks."""
    found = offered()[machine]
    if not found.carries_gpus:
        return machine
    return _no_smaller(machine, lambda each: not each.carries_gpus and {*found.boot_disks} <= {*each.boot_disks})


def nearest(machine: str, gpu: str, count: int) -> tuple[str, str, int]:
    """The machine most like this one with so many of the GPU; where there is none, one with at most so many L4."""
    found = offered()[machine]
    if count in found.gpus.get(gpu, ()):
        return machine, gpu, count
    if takers := _with(gpu, count):
        kind = machine.rpartition("-")[0]
        best = min(takers, key=lambda each: (not each.name.startswith(kind), abs(each.vcpus - found.vcpus)))
        return best.name, gpu, count
    count = max(each for each in (1, 2, 4, 8) if each <= count)
    return _with(_SUCCESSORS[1], count)[0].name, _SUCCESSORS[1], count


def _check_gpu(place: str, machine: str | None, gpu: str, count: int) -> None:
    if gpu in gpu_types():
        return
    instead, other, _ = substitute(machine or "n1-standard-8", gpu, count)
    _refuse(place, gpu, f"{other} in {instead}" if machine else other)
    raise UserError(f"{place}: {unknown('GPU type', gpu, gpu_types())}")


def _check_machine(place: str, machine: str) -> None:
    if machine in offered():
        return
    _refuse(place, machine, substitute(machine, None, 0)[0])
    near = difflib.get_close_matches(machine, offered(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "take for example n1-standard-4"
    families = ", ".join(dict.fromkeys(each.family for each in offered().values()))
    raise UserError(f"{place}: unknown machine type {machine!r}; {hint} (known families: {families})")


def _refuse(place: str, name: str, instead: str) -> None:
    """Refuses what is known and not to be had."""
    why = "TPU" if name.upper().startswith("TPU") else not_offered().get(name)
    if why == "TPU":
        raise UserError(f"{place}: {name} is a TPU, which is out of scope here; use GPUs, as of g2-standard-12")
    if why == "reservation":
        raise UserError(f"{place}: {name} needs a reservation, which a cluster file cannot name; use a4-highgpu-8g")
    if why == "gone":
        raise UserError(f"{place}: {name} is no longer offered; use {instead}")


def _no_smaller(machine: str, holds: Callable[[Machine], bool]) -> str:
    """The smallest machine with no fewer processors and no less memory; the largest if there is none."""
    row = next(row for row in table("machines") if row["machine_type"] == machine)
    vcpus, memory_gb = int(row["vcpus"]), float(row["memory_gb"])
    found = sorted(filter(holds, offered().values()), key=_size)
    return next((each for each in found if each.vcpus >= vcpus and each.memory_gb >= memory_gb), found[-1]).name


def _size(machine: Machine) -> tuple[int, float]:
    return machine.vcpus, machine.memory_gb


def _with(gpu: str, count: int) -> list[Machine]:
    """Machines that are offered with `count` of `gpu`, the smallest first."""
    return sorted((machine for machine in offered().values() if count in machine.gpus.get(gpu, ())), key=_size)
