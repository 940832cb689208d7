"""What the doctor says of projects that lack something; a server here answers for Google."""

import dataclasses
import json
from unittest import mock

import pytest
from google.api_core import exceptions
from google.oauth2.credentials import Credentials

from pipelines.doctoring import project_checks
from pipelines.doctoring.findings import FAILED, OK, WARNING, Finding
from tests.cloud.front import Answer, Front, Request


@dataclasses.dataclass(kw_only=True)
class Project:
    """A project that has all that is needed, until a test takes something away."""

    services: set[str] = dataclasses.field(default_factory=lambda: set(project_checks._SERVICES))
    permissions: set[str] = dataclasses.field(
        default_factory=lambda: {*project_checks._PERMISSIONS, "storage.objects.create"}
    )
    formats: tuple[str, ...] = ("DOCKER", "KFP")
    bucket: dict = dataclasses.field(default_factory=lambda: {"location": "US-CENTRAL1", "locationType": "region"})

    def answer(self, request: Request) -> Answer:
        assert request.headers["Authorization"] == "Bearer of-no-worth"
        match request.path.split("/")[1:]:
            case ["cloudresourcemanager", "v3", "projects", "my-project"]:
                return Answer(200, {"projectId": "my-project"})
            case ["serviceusage", "v1", "projects", "my-project", "services"]:
                return Answer(200, {"services": [{"name": f"projects/1/services/{name}"} for name in self.services]})
            case ["cloudresourcemanager", "v3", "projects", "my-project:testIamPermissions"]:
                asked = json.loads(request.body)["permissions"]
            case ["storage", "storage", "v1", "b", "my-bucket"]:
                return Answer(200, self.bucket)
            case ["storage", "storage", "v1", "b", "my-bucket", "iam", "testPermissions"]:
                asked = [request.query["permissions"]]
            case ["artifactregistry", "v1", "projects", "my-project", "locations", _, "repositories"]:
                return Answer(200, {"repositories": [{"format": name} for name in self.formats]})
            case _:
                raise exceptions.NotFound("there is no such thing")
        return Answer(200, {"permissions": sorted({*asked} & self.permissions)})

    def findings(self, *, project: str = "my-project", bucket: str = "gs://my-bucket", location: str = "us-central1"):
        with (
            Front(0, self.answer) as front,
            mock.patch.object(project_checks, "_API", f"http://127.0.0.1:{front.server_port}/{{}}/"),
            mock.patch("google.auth.default", lambda scopes: (Credentials("of-no-worth"), None)),
        ):
            found = list(project_checks.checks(project, bucket, location))
            front.shutdown()
        assert all(bool(finding.repair) == (finding.status != OK) for finding in found)
        return found


def only_wrong(found: list[Finding]) -> Finding:
    [wrong] = [finding for finding in found if finding.status != OK]
    return wrong


def test_a_project_that_has_everything_is_right():
    found = Project().findings()
    assert {finding.status for finding in found} == {OK}
    names = ["credentials", "project", "services", "permissions", "bucket", "repositories"]
    assert [finding.name for finding in found] == names


@pytest.mark.parametrize(
    ("lacking", "name", "status", "meaning", "repair"),
    [
        ({"services": {"storage.googleapis.com"}}, "services", FAILED, "missing: aiplatform.googleapis.com, ", "deploy/setup"),
        ({"permissions": {"storage.objects.create"}}, "permissions", FAILED, "aiplatform.customJobs.create", "gcloud projects add"),
        ({"permissions": set(project_checks._PERMISSIONS)}, "bucket", FAILED, "storage.objects.create", "gs://my-bucket --member"),
        ({"formats": ("DOCKER",)}, "repositories", WARNING, "missing: KFP", "deploy/setup"),
    ],
    ids=["services", "permissions", "bucket's permissions", "repositories"],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_repair(lacking, name, status, meaning, repair):
    wrong = only_wrong(Project(**lacking).findings())
    assert (wrong.name, wrong.status) == (name, status)
    assert meaning in wrong.meaning and repair in wrong.repair


@pytest.mark.parametrize(
    ("bucket", "location", "status"),
    [
        ({"location": "US-CENTRAL1"}, "us-central1", OK),
        ({"location": "EUROPE-WEST4"}, "us-central1", FAILED),
        ({"location": "US-CENTRAL1"}, "us-central2", FAILED),
        ({"location": "US"}, "us-central1", WARNING),
        ({"location": "EU"}, "us-central1", FAILED),
        ({"location": "US", "customPlacementConfig": {"dataLocations": ["US-EAST4", "US-WEST1"]}}, "us-west1", WARNING),
        ({"location": "NAM4", "customPlacementConfig": {"dataLocations": ["US-CENTRAL1", "US-EAST1"]}}, "us-east1", OK),
    ],
)
def test_a_bucket_in_another_region_is_told(bucket, location, status):
    found = {finding.name: finding for finding in Project(bucket=bucket).findings(location=location)}["bucket"]
    assert found.status == status
    assert status == OK or (bucket["location"].lower() in found.meaning and location in found.repair)


def test_a_project_or_a_bucket_that_is_not_there_is_told():
    missing = Project().findings(project="another")
    assert only_wrong(missing).name == "project" and len(missing) == 2
    wrong = only_wrong(Project().findings(bucket="gs://another"))
    assert (wrong.name, wrong.meaning) == ("bucket", "gs://another: there is no such thing")
