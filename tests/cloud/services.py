"""What a submission looks up beside Vertex AI and the store: accounts and images.

After the REST references of IAM (`serviceAccounts.testIamPermissions`) and the OCI distribution specification (manifests
and blobs). Names say how each behaves, so that tests at once need not agree on it.
"""

import json
import re

from google.api_core import exceptions

from tests.cloud.compute import Groups
from tests.cloud.front import Answer, Request


def account(request: Request) -> Answer:
    """Every account of the project is there; whoever asks may not act as those that are called `forbidden`."""
    name = re.fullmatch(r"/v1/projects/-/serviceAccounts/([^/]+):testIamPermissions", request.path)[1]
    if not name.endswith("@demo-project.iam.gserviceaccount.com"):
        raise exceptions.NotFound(f"Unknown service account {name}")
    wanted = json.loads(request.body)["permissions"]
    return Answer(200, {} if name.startswith("forbidden") else {"permissions": wanted})


def image(request: Request) -> Answer:
    """Every image is there but that whose digest is all f; the digest of all 1 is one for GPUs, others are for CPUs."""
    kind, digest = re.fullmatch(r"/v2/.+/(manifests|blobs)/sha256:(\w+)", request.path).groups()
    if digest == "f" * 64:
        raise exceptions.NotFound("manifest unknown")
    if kind == "manifests":
        return Answer(200, {"schemaVersion": 2, "config": {"digest": f"sha256:{digest}"}, "layers": []})
    labels = {"org.tfrecord-training.accelerator": "gpu" if digest == "1" * 64 else "cpu"}
    return Answer(200, {"config": {"Labels": labels}})


HOSTS = {
    "iam.googleapis.com": account,
    "us-docker.pkg.dev": image,
    "compute.googleapis.com": Groups().answer,
}
