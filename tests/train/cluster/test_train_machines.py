import re
from pathlib import Path

import pytest

from components.train.cluster import machines
from components.train.cluster.machines import Places, check, gpu_types, offered, substitute, without_gpus
from trainer.base.errors import UserError

T4 = "NVIDIA_TESLA_T4"


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
    assert "`machines.csv`" in readme
