import re
from pathlib import Path

import pytest

from components.train.cluster import machines
from components.train.cluster.machines import Places, check, gpu_types, offered, substitute, table, without_gpus
from trainer.base.errors import UserError

T4, L4, K80 = "NVIDIA_TESLA_T4", "NVIDIA_L4", "NVIDIA_TESLA_K80"
REFUSED = [
    (
        ("n1-standard-4", T4, 3),
        "worker: n1-standard-4 with 3 NVIDIA_TESLA_T4 is not offered (allowed: 1, 2, 4); use 4, or g2-standard-24 with 2 "
        "NVIDIA_L4",
    ),
    (
        ("n1-standard-32", T4, 1),
        "worker: n1-standard-32 with 1 NVIDIA_TESLA_T4 is not offered (allowed: 2, 4); use 2, or n1-standard-16 with 1 "
        "NVIDIA_TESLA_T4",
    ),
    (
        ("n2-standard-8", T4, 2),
        "worker: n2-standard-8 with 2 NVIDIA_TESLA_T4 is not offered (it takes none); use n1-standard-8 with 2 "
        "NVIDIA_TESLA_T4",
    ),
    (("a2-highgpu-1g", "NVIDIA_TESLA_A100", 2), "use 1, or a2-highgpu-2g with 2 NVIDIA_TESLA_A100"),
    (("a2-highgpu-1g", "NVIDIA_A100_80GB", 1), "use a2-ultragpu-1g with 1 NVIDIA_A100_80GB"),
    (
        ("g2-standard-24", None, 0),
        "worker.machine: g2-standard-24 always has 2 NVIDIA_L4; add 'accelerator: {type: NVIDIA_L4, count: 2}', or take a "
        "machine without GPUs",
    ),
    (("n1-standrd-8", None, 0), "worker.machine: unknown machine type 'n1-standrd-8'; did you mean n1-standard-8"),
    (("n1-highcpu-8", None, 0), "worker.machine: n1-highcpu-8 is no longer offered; use n1-standard-8"),
    (("cloud-tpu", None, 0), "worker.machine: cloud-tpu is a TPU, which is out of scope here"),
    (("ct5lp-hightpu-1t", None, 0), "worker.machine: ct5lp-hightpu-1t is a TPU"),
    (("a4x-highgpu-4g", None, 0), "a4x-highgpu-4g needs a reservation"),
    ((None, "NVIDIA_GB200", 4), "worker.accelerator.type: NVIDIA_GB200 needs a reservation"),
    ((None, "TPU_V3", 8), "worker.accelerator.type: TPU_V3 is a TPU, which is out of scope"),
    (
        (None, "NVIDIA_TESLA_P100", 1),
        "worker.accelerator.type: NVIDIA_TESLA_P100 is no longer offered; use NVIDIA_TESLA_T4",
    ),
    (("n1-standard-32", K80, 8), "NVIDIA_TESLA_K80 is no longer offered; use NVIDIA_L4 in g2-standard-96"),
    ((None, "NVIDIA_TESLA_T5", 1), "worker.accelerator.type: unknown GPU type 'NVIDIA_TESLA_T5'; did you mean"),
]


@pytest.mark.parametrize(("asked", "says"), REFUSED)
def test_what_is_not_offered_is_refused_with_what_would_do(asked: tuple, says: str):
    with pytest.raises(UserError, match=re.escape(says)):
        check(Places.of("worker"), *asked)


def test_every_row_of_the_table_passes_and_of_all_else_the_message_offers_what_is_offered():
    pattern = re.compile(r"(?:use|or) ([a-z]\d[\w-]+) with (\d+) (NVIDIA_\w+)")
    for machine in offered().values():
        for gpu in gpu_types():
            for count in (1, 2, 3, 4, 5, 8, 16):
                try:
                    check(Places.of("chief"), machine.name, gpu, count)
                except UserError as error:
                    assert count not in machine.gpus.get(gpu, ())
                    ((name, number, other),) = pattern.findall(str(error))
                    check(Places.of("chief"), name, other, int(number))
                else:
                    assert count in machine.gpus[gpu]


@pytest.mark.parametrize("gpu", ["NVIDIA_TESLA_K80", "NVIDIA_TESLA_P100"])
def test_what_is_gone_is_replaced_by_as_many_gpus_in_no_smaller_a_machine(gpu: str):
    # Larger ones never had so few.
    for machine in (each.name for each in offered().values() if each.family == "n1" and each.vcpus <= 32):
        for count in (1, 2, 4, 8):
            name, successor, number = substitute(machine, gpu, count)
            check(Places.of("chief"), name, successor, number)
            assert number == count
            assert offered()[name].vcpus >= offered()[machine].vcpus
            if count in offered()[machine].gpus.get(T4, ()):
                assert (name, successor) == (machine, T4)


def test_gpus_can_be_left_out_of_every_machine():
    for machine in offered().values():
        found = offered()[without_gpus(machine.name)]
        assert not found.carries_gpus
        assert set(machine.boot_disks) <= set(found.boot_disks)
        assert machine.carries_gpus or found == machine


def test_tables_are_shipped_with_their_date_and_source():
    folder = Path(machines.__file__).parent / "tables"
    readme = (folder / "README.md").read_text()
    assert f"As of {machines.AS_OF}" in readme
    assert len(offered()) > 100
    for name in ("machines", "regions", "quotas"):
        assert f"`{name}.csv`" in readme
        assert sum(1 for _ in table(name)) > 100
