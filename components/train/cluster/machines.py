"""The machines that Vertex AI offers for training, and the GPUs that each takes.

Synopsis:

    offered()["n1-standard-8"].gpus["NVIDIA_TESLA_T4"] == (1, 2, 4)
    check(Places.of("worker"), "n1-standard-8", "NVIDIA_TESLA_T4", 3)  # refused, with what would do instead
    substitute("n1-standard-16", "NVIDIA_TESLA_K80", 4) == ("n1-standard-16", "NVIDIA_TESLA_T4", 4)
"""

from __future__ import annotations

import csv
import dataclasses
import difflib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trainer.base.errors import UserError, unknown

AS_OF = "2026-08-22"
# Of AI Platform's time. Vertex AI's table may still list one; new jobs do not get it.
GONE_GPUS = ("NVIDIA_TESLA_K80", "NVIDIA_TESLA_P100")
# The same processors, at least as much memory.
GONE_MACHINES = {"n1-highcpu-8": "n1-standard-8"}
# By nearness to those that are gone: T4 goes into the same machines, L4 comes in eights.
_SUCCESSORS = ("NVIDIA_TESLA_T4", "NVIDIA_L4")
_RESERVED = "NVIDIA_GB200"
_TABLES = Path(__file__).parent / "tables"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine type.

    Attributes:
      name: As `n1-standard-8`.
      vcpus: Virtual processors.
      memory_gb: Main memory in GB.
      gpus: By GPU type, the counts in which it is offered with this machine.
      carries_gpus: Whether it is never without them.
    """

    name: str
    vcpus: int
    memory_gb: float
    gpus: Mapping[str, tuple[int, ...]]
    carries_gpus: bool

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
    def of(cls, role: str) -> Places:
        """Those of a pool in a cluster file."""
        return cls(role, f"{role}.machine", f"{role}.accelerator")


def table(name: str) -> Iterator[dict[str, str]]:
    """The rows of a shipped table: `machines`, `regions` or `quotas`."""
    with open(_TABLES / f"{name}.csv", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@functools.cache
def offered() -> Mapping[str, Machine]:
    """Machine types by name; those with TPUs, or that need a reservation, are left out."""
    rows: dict[str, list[dict[str, str]]] = {}
    for row in table("machines"):
        if not _is_tpu(row["accelerator"]) and row["accelerator"] != _RESERVED:
            rows.setdefault(row["machine_type"], []).append(row)
    return {
        name: Machine(
            name=name,
            vcpus=int(own[0]["vcpus"]),
            memory_gb=float(own[0]["memory_gb"]),
            gpus={
                row["accelerator"]: tuple(map(int, row["allowed_counts"].split(";")))
                for row in own
                if row["accelerator"] and row["accelerator"] not in GONE_GPUS
            },
            carries_gpus=all(row["accelerator"] for row in own),
        )
        for name, own in rows.items()
    }


@functools.cache
def gpu_types() -> tuple[str, ...]:
    """Those offered with some machine."""
    return tuple(sorted({gpu for machine in offered().values() for gpu in machine.gpus}))


def check(places: Places, machine: str | None, gpu: str | None, count: int) -> None:
    """Refuses a machine, a GPU or a combination that is not offered.

    Args:
      places: Where they are named.
      machine: Type, or None where only a GPU is named.
      gpu: Type, or None.
      count: GPUs of one machine.

    Raises:
      UserError: Naming what is offered and what is nearest.
    """
    if machine:
        _check_machine(places.machine, machine)
    if gpu:
        _check_gpu(f"{places.gpus}.type", machine, gpu, count)
    if not machine:
        return
    found = offered()[machine]
    if not gpu:
        if found.carries_gpus:
            ((built_in, (number,)),) = found.gpus.items()
            name = places.gpus.rpartition(".")[2]
            raise UserError(
                f"{places.machine}: {machine} always has {number} {built_in}; "
                f"add '{name}: {{type: {built_in}, count: {number}}}', or take a machine without GPUs"
            )
    elif count not in found.gpus.get(gpu, ()):
        counts = found.gpus.get(gpu, ())
        enough = min((each for each in counts if each >= count), default=max(counts, default=0))
        allowed = (
            f"allowed: {', '.join(map(str, counts))}" if counts else f"it takes {' or '.join(found.gpus) or 'none'}"
        )
        instead = [str(enough)] if counts else []
        raise UserError(
            f"{places.pool}: {machine} with {count} {gpu} is not offered ({allowed}); "
            f"use {', or '.join([*instead, _alternative(found, gpu, count)])}"
        )


def substitute(machine: str, gpu: str | None, count: int) -> tuple[str, str | None, int]:
    """The nearest offered machine and GPU to what AI Platform had; what is still offered comes back as it is.

    A GPU that is gone is replaced by as many T4 in the same machine; where there are not so many, by the smallest
    machine with so many T4 or L4 and no fewer processors.
    """
    machine = GONE_MACHINES.get(machine, machine)
    if gpu not in GONE_GPUS or machine not in offered():
        return machine, gpu, count
    for successor in _SUCCESSORS:
        if count in offered()[machine].gpus.get(successor, ()):
            return machine, successor, count
        larger = [each for each in _with(successor, count) if each.vcpus >= offered()[machine].vcpus]
        if larger:
            return larger[0].name, successor, count
    return machine, _SUCCESSORS[0], count  # Never offered in such a number; the check says what is.


def _check_gpu(place: str, machine: str | None, gpu: str, count: int) -> None:
    if _is_tpu(gpu):
        raise UserError(f"{place}: {gpu} is a TPU, which is out of scope here; use a GPU, such as {_SUCCESSORS[0]}")
    if gpu == _RESERVED:
        raise UserError(f"{place}: {gpu} needs a reservation, which a cluster file cannot name; use NVIDIA_B200")
    if gpu in GONE_GPUS:
        new_machine, new_gpu, _ = substitute(machine or "n1-standard-8", gpu, count)
        where = f" in {new_machine}" if machine else ""
        raise UserError(f"{place}: {gpu} is no longer offered; use {new_gpu}{where}")
    if gpu not in gpu_types():
        raise UserError(f"{place}: {unknown('GPU type', gpu, gpu_types())}")


def _check_machine(place: str, machine: str) -> None:
    if machine in offered():
        return
    for row in table("machines"):
        if row["machine_type"] == machine:
            why = f"{_RESERVED}, which needs a reservation" if row["accelerator"] == _RESERVED else "TPUs"
            raise UserError(f"{place}: {machine} has {why}: out of scope here; use for example g2-standard-12")
    if machine in GONE_MACHINES:
        raise UserError(f"{place}: {machine} is not offered by Vertex AI; use {GONE_MACHINES[machine]}")
    near = difflib.get_close_matches(machine, offered(), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "take for example n1-standard-4"
    families = ", ".join(dict.fromkeys(each.family for each in offered().values()))
    raise UserError(f"{place}: unknown machine type {machine!r}; {hint} (known families: {families})")


def _with(gpu: str, count: int) -> list[Machine]:
    """Machines that are offered with `count` of `gpu`, the smallest first."""
    found = (machine for machine in offered().values() if count in machine.gpus.get(gpu, ()))
    return sorted(found, key=lambda machine: (machine.vcpus, machine.memory_gb))


def _alternative(machine: Machine, gpu: str, count: int) -> str:
    """The machine most like `machine` with `count` of `gpu`; where there is none, one with at most so many L4."""
    takers = _with(gpu, count)
    if takers:
        kind, vcpus = machine.name.rpartition("-")[0], machine.vcpus
        best = min(takers, key=lambda each: (not each.name.startswith(kind), abs(each.vcpus - vcpus)))
    else:
        gpu = _SUCCESSORS[1]
        count = max(each for each in (1, 2, 4, 8) if each <= count)
        best = _with(gpu, count)[0]
    return f"{best.name} with {count} {gpu}"


def _is_tpu(accelerator: str) -> bool:
    return accelerator.lower().startswith("tpu")
