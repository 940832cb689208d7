import json
from pathlib import Path

import pytest
import yaml

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Accelerator, Pool
from components.train.cluster.machines import gpu_types, offered
from components.train.cluster.quotas import check_region, quota_warnings
from trainer.base.errors import UserError

CASES = yaml.safe_load(Path(__file__).with_name("quotas.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_what_a_new_project_would_wait_for_and_what_is_odd_is_warned_of(case: dict):
    cluster = Cluster.from_json(json.dumps(case["file"]))
    for region, says in case["warns"].items():
        found = quota_warnings(cluster, region)
        assert [warning[: len(start)] for warning, start in zip(found, says, strict=True)] == says


def test_every_gpu_is_offered_somewhere_and_other_regions_are_refused_with_those_that_would_do():
    for gpu in gpu_types():
        machine = next(each for each in offered().values() if gpu in each.gpus)
        accelerator = Accelerator(type=gpu, count=machine.gpus[gpu][0])
        cluster = Cluster(strategy="mirrored", chief=Pool(machine=machine.name, accelerator=accelerator))
        with pytest.raises(
            UserError, match=rf"chief: {gpu} is not offered for training in africa-south1; take one"
        ) as no:
            check_region(cluster, "africa-south1")
        check_region(cluster, str(no.value).partition("take one of ")[2].split(",")[0])
    with pytest.raises(UserError, match=r"region: unknown region 'us-centrl1'; did you mean 'us-central1'\?"):
        check_region(cluster, "us-centrl1")
