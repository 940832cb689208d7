import dataclasses

import pytest
from train_settings import ATTACHMENT, BOARD, GIVEN, NETWORK, RESERVATION

from common.errors import UserError
from components.train.backends.job_settings import JobSettings
from components.train.backends.vertex import request
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster


def cluster(strategy: str = "STANDARD") -> Cluster:
    machine = {"machine": "g2-standard-4", "accelerator": {"type": "NVIDIA_L4"}}
    return Cluster(strategy="one_device", chief=machine, scheduling={"strategy": strategy})


def test_every_setting_survives_being_a_step_s_flags():
    assert GIVEN.keys() == {field.name for field in dataclasses.fields(JobSettings)}
    for name, value in GIVEN.items():
        for each in (value, value[0]) if isinstance(value, tuple) else (value,):
            settings = JobSettings(**{name: each})
            assert JobSettings.parse(settings.as_flags(), "plan") == settings != JobSettings()


# By setting: where it arrives in the job, and as what if not as it is.
ARRIVES = {
    "training_service_account": ("jobSpec.serviceAccount", None),
    "network": ("jobSpec.network", None),
    "reserved_ip_ranges": ("jobSpec.reservedIpRanges", ["range-1", "range-2"]),
    "network_attachment": ("jobSpec.pscInterfaceConfig.networkAttachment", None),
    "encryption_key": ("encryptionSpec.kmsKeyName", None),
    "labels": ("labels", {"team": "blue", "cost": "low", "managed_by": "tfrecord-training", "run": "name"}),
    "tensorboard": ("jobSpec.tensorboard", None),
    "persistent_resource": ("jobSpec.persistentResourceId", None),
    "reservation": ("jobSpec.workerPoolSpecs.0.machineSpec.reservationAffinity.values.0", None),
    "max_wait": ("jobSpec.scheduling.maxWaitDuration", "21600s"),
    "web_access": ("jobSpec.enableWebAccess", None),
    "restart": ("jobSpec.scheduling.restartJobOnWorkerRestart", False),
}


@pytest.mark.parametrize("name", ARRIVES)
def test_setting_arrives_in_job(name: str):
    settings, (place, expected) = JobSettings(**{name: GIVEN[name]}), ARRIVES[name]
    specs = plan_vertex(cluster(), "IMAGE", [], settings=settings)
    value = request(cluster(), settings, specs, name="name", job_dir="gs://b/job")
    for key in place.split("."):
        value = value[int(key)] if key.isdigit() else value[key]
    assert value == (GIVEN[name] if expected is None else expected)


def test_environment_arrives_in_every_pool():
    [spec] = plan_vertex(cluster(), "IMAGE", [], settings=JobSettings(env=GIVEN["env"]))
    assert {"name": "TEXT", "value": "a = b"} in spec["container_spec"]["env"]


@pytest.mark.parametrize(
    ("given", "strategy", "message"),
    [
        ({"network": NETWORK, "network_attachment": ATTACHMENT}, "STANDARD", "exclude each other"),
        ({"reserved_ip_ranges": "r"}, "STANDARD", "are those of a network"),
        ({"max_wait": "6h"}, "SPOT", "for FLEX_START; the cluster file says SPOT"),
        ({"reservation": RESERVATION}, "SPOT", "reservation needs STANDARD"),
        ({"persistent_resource": "pool-1"}, "FLEX_START", "FLEX_START asks for others"),
        ({"reservation": RESERVATION, "persistent_resource": "pool-1"}, "STANDARD", "exclude each other"),
        ({"tensorboard": BOARD}, "STANDARD", "needs training_service_account"),
        ({"encryption_key": GIVEN["encryption_key"].replace("us-", "eu-")}, "STANDARD", "lies in eu-central1"),
        ({"reservation": RESERVATION.replace("1-a", "10-a")}, "STANDARD", "lies in us-central10-a"),
        ({"labels": ("a=b", "run=mine")}, "STANDARD", "labels run: "),
        ({"env": "TF_CONFIG={}"}, "STANDARD", "env TF_CONFIG: "),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given, strategy, message):
    with pytest.raises(UserError, match=message):
        JobSettings(**given).check(cluster(strategy), "us-central1")


@pytest.mark.parametrize("flag", ["--env=A=", "--env=1=2", "--labels=A=b", "--network=default", "--max-wait=6"])
def test_a_value_of_another_form_is_refused(flag):
    with pytest.raises((UserError, SystemExit)):
        JobSettings.parse([flag], "plan")


def test_replicas_of_parameter_servers_start_again_alone_and_others_all_together():
    pools = {"chief": {}, "worker": {}, "ps": {}}
    alone = Cluster(strategy="parameter_server", **pools)
    for each, restart, expected in ((cluster(), None, True), (alone, None, False), (alone, "all", True)):
        assert JobSettings(restart=restart).arguments(each)["restart_job_on_worker_restart"] is expected
