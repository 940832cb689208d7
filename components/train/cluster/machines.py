"""The machines that Vertex AI offers for training, and the GPUs that each takes.

    GPUS["n1-standard-8"]["NVIDIA_TESLA_T4"] == (1, 2, 4)
    check_gpus("n1-standard-8", "NVIDIA_TESLA_T4", 3)  # UserError with the allowed numbers.
    REPLACED_BY["NVIDIA_TESLA_K80"] == "NVIDIA_TESLA_T4"

The data are in `tables/machines.csv` and `tables/not_offered.csv`.
"""

import csv
from collections.abc import Collection
from pathlib import Path

from common.errors import UserError, unknown


def _rows(table: str) -> list[dict[str, str]]:
    with open(Path(__file__).parent / "tables" / table, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# Types of boot disks by machine type, the default first.
BOOT_DISKS: dict[str, list[str]] = {}
# Allowed numbers of GPUs by machine type and GPU type. A machine that is offered without GPUs has
# the GPU type "" with the number 0.
GPUS: dict[str, dict[str, tuple[int, ...]]] = {}
for _row in _rows("machines.csv"):
    BOOT_DISKS[_row["machine_type"]] = _row["boot_disks"].split(";")
    _counts = tuple(map(int, (_row["allowed_counts"] or "0").split(";")))
    GPUS.setdefault(_row["machine_type"], {})[_row["accelerator"]] = _counts
GPU_TYPES = {gpu for _gpus in GPUS.values() for gpu in _gpus if gpu}
_NOT_OFFERED = {row["name"]: row for row in _rows("not_offered.csv")}
REPLACED_BY = {name: row["replaced_by"] for name, row in _NOT_OFFERED.items() if row["replaced_by"]}


def check_machine(name: str) -> str:
    """Returns the name of a machine type if Vertex AI offers it.

    Raises:
      UserError: If it is not offered. The message names the nearest type, or what to use instead.
    """
    # The message lists only the types of the machine's family, or else the families: all types
    # would not fit in a line.
    family = [each for each in GPUS if each.startswith(f"{name.partition('-')[0]}-")]
    return _check_name("machine type", name, family or {each.partition("-")[0] for each in GPUS})


def check_gpu(name: str) -> str:
    """Returns the name of a GPU type if Vertex AI offers it with any machine.

    Raises:
      UserError: If it is not offered. The message names the nearest type, or what to use instead.
    """
    return _check_name("GPU type", name, GPU_TYPES)


def _check_name(kind: str, name: str, known: Collection[str]) -> str:
    if name in _NOT_OFFERED:
        raise UserError(f"{name} {_NOT_OFFERED[name]['why']}")
    if name not in known:
        raise unknown(kind, name, known)
    return name


def check_gpus(machine: str, gpu: str, count: int) -> None:
    """Checks that a machine is offered with these GPUs.

    Args:
      machine: Machine type that is offered; another one raises a KeyError.
      gpu: GPU type; empty for none.
      count: Number of GPUs of each machine; 0 for none.

    Raises:
      UserError: If the combination is not offered. The message lists the allowed numbers of this
        GPU, or the GPU types that the machine takes.
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
