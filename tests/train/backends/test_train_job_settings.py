import pytest

from components.train.backends.job_settings import JobSettings
from components.train.backends.vertex import request
from components.train.cluster.cluster_file import Cluster
from tests.errors import user_error

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
        *((f"--env={name}=x", "is not .* by which the cluster is") for name in DESCRIBING),
        ("--labels=run=mine", "is not .* by which cleanup and registry go"),
        ("--labels=managed_by=me", "is not .* by which cleanup and registry go"),
    ],
)
def test_setting_of_ours_is_refused(flag, message):
    """Refusals by rules of our own; tests/contracts/test_cloud_rules.py has those of Vertex AI."""
    with user_error(message):
        JobSettings.parse([flag], "plan")
