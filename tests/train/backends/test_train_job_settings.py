import pytest

from common.errors import UserError
from components.train.backends.job_settings import JobSettings
from components.train.backends.vertex import request
from components.train.cluster.cluster_file import Cluster

DESCRIBING = ("TF_CONFIG", "CLUSTER_SPEC", "TRAINER_THREADS", "AIP_MODEL_DIR", "CLOUD_ML_JOB_ID")


def test_key_arrives_in_job():
    """The other settings are arguments as the pipeline has them, whose requests are reviewed."""
    cluster = Cluster(strategy="one_device", chief={"machine": "n1-standard-4"})
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    body = request("name", JobSettings(encryption_key=key).arguments(cluster))
    assert body["encryptionSpec"] == {"kmsKeyName": key}


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
