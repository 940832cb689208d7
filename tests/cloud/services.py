"""Small services: accounts, policies and images of a submission, and Compute Engine's groups.

After the REST references of IAM (`serviceAccounts.testIamPermissions`, `getIamPolicy`) and of
`instanceGroupManagers` (insert, delete), and the OCI distribution specification (manifests and
blobs).
"""

import functools
import json
import re

from google.api_core import exceptions

from tests.cloud.front import Answer


def account(iam, request):
    """Permissions for an account, or its policy; every account of the project exists."""
    _, name, verb = re.split(r"/v1/projects/-/serviceAccounts/|:(?=\w+$)", request.path)
    if not name.endswith("@demo-project.iam.gserviceaccount.com"):
        raise exceptions.NotFound(f"Unknown service account {name}")
    if verb == "getIamPolicy":
        if request.body:
            raise exceptions.BadRequest("the request body must be empty")
        return Answer(200, iam.policy(request, "iam.serviceAccounts.getIamPolicy", name))
    wanted = json.loads(request.body)["permissions"]
    allowed = [each for each in wanted if iam.allows(request, each, name)]
    return Answer(200, {"permissions": allowed} if allowed else {})


def project(iam, request):
    """The policy of a project."""
    name = re.fullmatch("/v3/(projects/[^/]+):getIamPolicy", request.path)[1]
    return Answer(200, iam.policy(request, "resourcemanager.projects.getIamPolicy", name))


def image(iam, request):
    """Every image is there."""
    place, digest = re.fullmatch(r"/v2/(.+)/[^/]+/manifests/sha256:(\w+)", request.path).groups()
    iam.require(request, "artifactregistry.repositories.downloadArtifacts", place)
    return Answer(200, {"schemaVersion": 2, "config": {"digest": f"sha256:{digest}"}, "layers": []})


_GROUP = {"name", "description", "baseInstanceName", "instanceTemplate", "targetSize", "params"}


def group(names, request):
    """Makes or deletes a managed group of instances; its machines are what a test starts."""
    match request.method, request.path.split("/")[7:]:
        case "POST", ["instanceGroupManagers"]:
            if unknown := (body := json.loads(request.body)).keys() - _GROUP:
                raise exceptions.BadRequest(f"unknown fields {unknown}")
            if body["name"] in names:
                raise exceptions.Conflict(body["name"])
            names.add(body["name"])
        case "DELETE", ["instanceGroupManagers", name] if name in names:
            names.remove(name)
        case _:
            raise exceptions.NotFound(request.path)
    return Answer(200, {"kind": "compute#operation", "status": "RUNNING"})


def hosts(iam):
    """Returns the function that answers for each host."""
    return {
        "iam.googleapis.com": functools.partial(account, iam),
        "cloudresourcemanager.googleapis.com": functools.partial(project, iam),
        "us-docker.pkg.dev": functools.partial(image, iam),
        "compute.googleapis.com": functools.partial(group, set()),
    }
