import dataclasses

import pytest
from train_settings import BOARD, GIVEN

from common.errors import UserError
from components.train.backends.job_settings import JobSettings
from components.train.backends.vertex import request
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster

CLUSTER = Cluster(strategy="one_device", chief={"machine": "n1-standard-4"})


def test_every_setting_survives_as_flags():
    assert GIVEN.keys() == {field.name for field in dataclasses.fields(JobSettings)}
    for name, value in GIVEN.items():
        for each in (value, value[0]) if isinstance(value, tuple) else (value,):
            settings = JobSettings(**{name: each})
            assert JobSettings.parse(settings.as_flags(), "plan") == settings != JobSettings()


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        ("training_service_account", "jobSpec.serviceAccount", None),
        ("network", "jobSpec.network", None),
        ("encryption_key", "encryptionSpec.kmsKeyName", None),
        ("labels", "labels", {"team": "blue", "cost": "low", "managed_by": "tfrecord-training", "run": "name"}),
        ("tensorboard", "jobSpec.tensorboard", None),
    ],
)
def test_setting_arrives_in_job(name: str, place: str, expected):
    value = request("name", JobSettings(**{name: GIVEN[name]}).arguments(CLUSTER, "name"))
    for key in place.split("."):
        value = value[key]
    assert value == (expected or GIVEN[name])


def test_environment_arrives_in_every_pool():
    [spec] = plan_vertex(CLUSTER, "IMAGE", [], env=JobSettings(env=GIVEN["env"]).environment)
    assert {"name": "TEXT", "value": "a = b"} in spec["container_spec"]["env"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tensorboard": BOARD}, "needs training_service_account"),
        ({"encryption_key": GIVEN["encryption_key"].replace("us-", "eu-")}, "lies in eu-central1"),
    ],
)
def test_settings_that_conflict_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        JobSettings(**given).check("us-central1")


@pytest.mark.parametrize("flag", ["--env=A=", "--env=1=2", "--labels=A=b", "--network=default"])
def test_malformed_setting_is_refused(flag):
    with pytest.raises(UserError, match=" is not a "):
        JobSettings.parse([flag], "plan")


@pytest.mark.parametrize("name", ["TF_CONFIG", "CLUSTER_SPEC", "TRAINER_THREADS", "AIP_MODEL_DIR", "CLOUD_ML_JOB_ID"])
def test_variable_that_describes_cluster_is_refused(name):
    with pytest.raises(UserError, match=f"'{name}=x' is not .* by which the cluster is described"):
        JobSettings.parse([f"--env={name}=x"], "plan")
    assert JobSettings.parse([f"--env=MY_{name}=x"], "plan").env == f"MY_{name}=x"


@pytest.mark.parametrize("label", ["run=mine", "managed_by=me"])
def test_label_of_ours_is_refused(label):
    with pytest.raises(UserError, match=f"'{label}' is not .* by which cleanup and registry go"):
        JobSettings.parse(["--labels", "a=b", label], "plan")
    assert JobSettings.parse([f"--labels={label.replace('=', '2=')}"], "plan").labels


@pytest.mark.parametrize(("strategy", "expected"), [("multi_worker_mirrored", True), ("parameter_server", False)])
def test_lost_parameter_server_replica_restarts_alone(strategy, expected):
    pools = {"chief": {}, "worker": {}, "ps": {}} if strategy == "parameter_server" else {"chief": {}, "worker": {}}
    arguments = JobSettings().arguments(Cluster(strategy=strategy, **pools))
    assert arguments["restart_job_on_worker_restart"] is expected
