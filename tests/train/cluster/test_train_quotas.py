import pytest

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Accelerator, Disk, Pool, Scheduling
from components.train.cluster.machines import gpu_types, offered
from components.train.cluster.quotas import check_region, quota_warnings
from trainer.base.errors import UserError

L4 = Pool(machine="g2-standard-12", accelerator=Accelerator(type="NVIDIA_L4"))
T4 = Pool(machine="n1-standard-8", accelerator=Accelerator(type="NVIDIA_TESLA_T4", count=4))


def test_gpu_without_a_default_quota_is_warned_of():
    (warning,) = quota_warnings(Cluster(strategy="one_device", chief=L4), "us-central1")
    assert warning == (
        "default quota for NVIDIA_L4 in us-central1 is 0 (needed: 1); the job would wait in QUEUED until the project has "
        "more (no region has enough by default)"
    )


def test_pools_add_up_and_regions_with_enough_are_named_the_near_ones_first():
    cluster = Cluster(strategy="multi_worker_mirrored", chief=T4, worker=T4)
    assert quota_warnings(cluster, "us-central1") == []
    (warning,) = quota_warnings(cluster, "europe-west2")
    assert "for NVIDIA_TESLA_T4 in europe-west2 is 6 (needed: 8)" in warning
    assert "(enough by default: us-central1)" in warning
    one = Cluster(strategy="mirrored", chief=T4)
    assert "(enough by default: europe-west2, asia-northeast1," in quota_warnings(one, "europe-west4")[0]


def test_processors_and_disks_count_by_family():
    pool = Pool(machine="n2-standard-8", replicas=40)
    cluster = Cluster(
        strategy="multi_worker_mirrored", chief=Pool(machine="n1-standard-8"), worker=pool, disk=Disk(size_gb=20_000)
    )
    disk, cpus = quota_warnings(cluster, "us-west2")
    assert "for N2 vCPUs in us-west2 is 20 (needed: 320)" in cpus
    assert "for GB of pd-ssd in us-west2 is 450 (needed: 820000)" in disk


def test_spot_machines_have_other_quotas():
    cluster = Cluster(strategy="one_device", chief=L4, scheduling=Scheduling(strategy="SPOT"))
    (warning,) = quota_warnings(cluster, "us-central1")
    assert warning.startswith("SPOT machines count against the project's preemptible quotas")


def test_gpus_of_an_evaluator_beyond_the_first_are_odd():
    (odd,) = quota_warnings(Cluster(strategy="mirrored", chief=T4, evaluator=T4), "us-central1")
    assert odd.startswith("evaluator: all its GPUs would be paid for and one used")


def test_without_a_disk_each_machine_has_its_own_and_that_is_counted():
    many = Pool(machine="n1-standard-8", replicas=10)
    cluster = Cluster(strategy="multi_worker_mirrored", chief=Pool(machine="n4-standard-4"), worker=many)
    assert any("for GB of pd-ssd in us-west2 is 450 (needed: 1000)" in w for w in quota_warnings(cluster, "us-west2"))


def test_region_without_the_gpu_and_one_that_does_not_exist_are_refused_with_those_that_would_do():
    cluster = Cluster(strategy="one_device", chief=L4)
    check_region(cluster, "us-central1")
    with pytest.raises(
        UserError, match=r"chief: NVIDIA_L4 is not offered for training in asia-east1; take one of asia-no"
    ):
        check_region(cluster, "asia-east1")
    with pytest.raises(UserError, match=r"region: unknown region 'us-centrl1'; did you mean 'us-central1'\?"):
        check_region(cluster, "us-centrl1")


def test_every_gpu_is_offered_somewhere():
    for gpu in gpu_types():
        machine = next(each for each in offered().values() if gpu in each.gpus)
        accelerator = Accelerator(type=gpu, count=machine.gpus[gpu][0])
        cluster = Cluster(strategy="mirrored", chief=Pool(machine=machine.name, accelerator=accelerator))
        with pytest.raises(UserError, match=r"take one of [a-z]"):
            check_region(cluster, "africa-south1")
