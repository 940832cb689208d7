import dataclasses

import pytest
from train_settings import GIVEN

from common.errors import UserError
from components.train.backends.job_settings import JobSettings
from components.train.backends.vertex import request
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster

DESCRIBING = ("TF_CONFIG", "CLUSTER_SPEC", "TRAINER_THREADS", "AIP_MODEL_DIR", "CLOUD_ML_JOB_ID")
CLUSTER = Cluster(strategy="one_device", chief={"machine": "n1-standard-4"})


@pytest.mark.parametrize("field", dataclasses.fields(JobSettings), ids=lambda field: field.name)
def test_setting_survives_as_flags(field):
    settings = JobSettings(**{field.name: GIVEN[field.name]})
    assert JobSettings.parse(settings.as_flags(), "plan") == settings != JobSettings()


def test_settings_arrive_in_job():
    settings = JobSettings(**GIVEN)
    body = request("name", settings.arguments(CLUSTER, "name"))
    expected = {key: GIVEN[key] for key in ("network", "tensorboard")}
    expected["serviceAccount"] = GIVEN["training_service_account"]
    assert body["jobSpec"].items() >= expected.items()
    assert body["encryptionSpec"] == {"kmsKeyName": GIVEN["encryption_key"]}
    ours = {"managed_by": "tfrecord-training", "run": "name"}
    assert body["labels"] == {"team": "blue", "cost": "low", **ours}
    [spec] = plan_vertex(CLUSTER, "IMAGE", [], env=settings.environment)
    assert {"name": "TEXT", "value": "a = b"} in spec["container_spec"]["env"]


def test_key_of_other_region_is_refused():
    settings = JobSettings(encryption_key=GIVEN["encryption_key"])
    settings.check("us-central1")
    with pytest.raises(UserError, match="lies in us-central1, and the run in europe-west4"):
        settings.check("europe-west4")


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--env=A=", "is not a variable"),
        ("--env=1=2", "is not a variable"),
        ("--labels=A=b", "is not a label"),
        ("--network=default", "is not a name"),
        ("--network=projects/my-project/global/networks/n", "with the number of the project"),
        ("--training-service-account=me@gmail.com", "is not the e-mail address of a service acc"),
        ("--encryption-key=projects/p/locations/l/keyRings/r/cryptoKeys/a key", "is not a name"),
        *((f"--env={name}=x", "is not .* by which the cluster is") for name in DESCRIBING),
        ("--labels=run=mine", "is not .* by which cleanup and registry go"),
        ("--labels=managed_by=me", "is not .* by which cleanup and registry go"),
    ],
)
def test_bad_setting_is_refused(flag, message):
    with pytest.raises(UserError, match=message):
        JobSettings.parse([flag], "plan")


@pytest.mark.parametrize(("key", "most"), [("labels", 62), ("env", 98)])
def test_too_many_values_are_refused(key, most):
    values = tuple(f"k{i}=v" for i in range(most + 1))
    JobSettings(**{key: values[:most]}).check("us-central1")
    with pytest.raises(UserError, match=f"^{key}: .* but Vertex AI takes at most"):
        JobSettings(**{key: values}).check("us-central1")


@pytest.mark.parametrize("strategy", ["multi_worker_mirrored", "parameter_server"])
def test_lost_synchronous_worker_restarts_job(strategy):
    arguments = JobSettings().arguments(CLUSTER.model_copy(update={"strategy": strategy}))
    assert arguments["restart_job_on_worker_restart"] is (strategy == "multi_worker_mirrored")
