import pytest

from common.errors import UserError
from components.train.cluster.ai_platform import replacement
from components.train.cluster.machines import Places, check, gpu_types, offered
from components.train.cluster.scale_tiers import LEGACY_MACHINES


def test_the_table_decides_which_pairs_pass():
    for machine in offered().values():
        for gpu in gpu_types():
            for count in (1, 2, 3, 4, 5, 8, 16):
                if count in machine.gpus.get(gpu, ()):
                    check(Places.of("chief"), machine.name, gpu, count)
                else:
                    with pytest.raises(UserError, match=f"{machine.name} with {count} {gpu} is not offered"):
                        check(Places.of("chief"), machine.name, gpu, count)


@pytest.mark.parametrize("name", LEGACY_MACHINES)
def test_every_legacy_machine_is_replaced_by_an_offered_one(name: str):
    asked = LEGACY_MACHINES[name]
    found = replacement(asked)
    check(Places.of("chief"), *found)
    assert found.count == asked.count
    assert offered()[found.machine].vcpus >= int(asked.machine.rpartition("-")[2])
