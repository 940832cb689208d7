"""The machines that Vertex AI offers for training, and the GPUs that each takes.

GPUS["n1-standard-8"]["NVIDIA_TESLA_T4"] == (1, 2, 4)
check_gpus("n1-standard-8", "NVIDIA_TESLA_T4", 3)  # UserError with the counts that are offered
REPLACED_BY["NVIDIA_TESLA_K80"] == "NVIDIA_TESLA_T4"
"""

import csv
from collections.abc import Collection
from pathlib import Path

from common.errors import UserError, unknown


def _rows(table: str) -> list[dict[str, str]]:
    with open(Path(__file__).parent / "tables" / table, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# By machine type: what it boots from, its default first; and the counts in which each GPU type is
# offered with it, "" and 0 if it is offered without GPUs.
BOOT_DISKS: dict[str, list[str]] = {}
GPUS: dict[str, dict[str, tuple[int, ...]]] = {}
for _row in _rows("machines.csv"):
    BOOT_DISKS[_row["machine_type"]] = _row["boot_disks"].split(";")
    _counts = tuple(map(int, (_row["allowed_counts"] or "0").split(";")))
    GPUS.setdefault(_row["machine_type"], {})[_row["accelerator"]] = _counts
GPU_TYPES = {gpu for _gpus in GPUS.values() for gpu in _gpus if gpu}
_NOT_OFFERED = {row["name"]: row for row in _rows("not_offered.csv")}
REPLACED_BY = {name: row["replaced_by"] for name, row in _NOT_OFFERED.items() if row["replaced_by"]}


def check_machine(name: str) -> str:
    """Returns the name of a machine type if it is offered; a UserError names the nearest, or what to take instead."""
    # All machine types would not fit in a line: those of its family, or the families.
    family = [each for each in GPUS if each.startswith(f"{name.partition('-')[0]}-")]
    return _check_name("machine type", name, family or {each.partition("-")[0] for each in GPUS})


def check_gpu(name: str) -> str:
    """Returns the name of a GPU type if it is offered with some machine; raises as `check_machine`."""
    return _check_name("GPU type", name, GPU_TYPES)


def _check_name(kind: str, name: str, known: Collection[str]) -> str:
    if name in _NOT_OFFERED:
        raise UserError(f"{name} {_NOT_OFFERED[name]['why']}")
    if name not in known:
        raise unknown(kind, name, known)
    return name


def check_gpus(machine: str, gpu: str, count: int) -> None:
    """Refuses GPUs that an offered machine does not take.

    Args:
      machine: Machine type.
      gpu: GPU type; empty for none.
      count: GPUs of the machine.

    Raises:
      UserError: With what the machine takes.
    """
    offers = GPUS[machine]
    if count in offers.get(gpu, ()):
        return
    if gpu in offers:
        offered = f"allowed: {', '.join(map(str, offers[gpu]))}"
    else:
        offered = f"it takes {' or '.join(name or 'none' for name in offers)}"
    gpus = f"{count} {gpu}" if gpu else "no GPU"
    raise UserError(
        f"{machine} with {gpus} is not offered ({offered}); write what is, or another machine"
    )
