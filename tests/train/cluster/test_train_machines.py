import pytest

from common.errors import UserError
from components.train.cluster.ai_platform import LEGACY_MACHINES
from components.train.cluster.cluster_file import Pool
from components.train.cluster.machines import GPU_TYPES, GPUS, check_gpus


def test_table_decides_which_pairs_pass():
    for name, offers in GPUS.items():
        for gpu in GPU_TYPES:
            for count in (1, 2, 3, 4, 5, 8, 16):
                if count in offers.get(gpu, ()):
                    check_gpus(name, gpu, count)
                else:
                    with pytest.raises(UserError, match=f"{name} with {count} {gpu} is not offered"):
                        check_gpus(name, gpu, count)


@pytest.mark.parametrize("name", sorted(LEGACY_MACHINES.keys() - {"cloud_tpu"}))
def test_legacy_machine_is_replaced_by_offered_one(name: str):
    legacy = {key: value for key, value in LEGACY_MACHINES[name].items() if key != "was"}
    assert Pool.read(legacy).machine
