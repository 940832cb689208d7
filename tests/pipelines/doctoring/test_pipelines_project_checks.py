"""What the doctor says of projects that lack something; a server here answers for Google."""

import dataclasses
import json
from unittest import mock

import pytest
from google.api_core import exceptions
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials

from pipelines.doctoring import project_checks
from pipelines.doctoring.findings import FAILED, OK, Finding
from pipelines.vertex import checks
from tests.cloud.front import Answer, Front, Request

STARTS, WRITES = project_checks._PERMISSIONS, set(checks._WRITES)


@dataclasses.dataclass(kw_only=True)
class Project:
    """A project that has all that is needed, until a test takes something away."""

    permissions: set[str] = dataclasses.field(default_factory=lambda: STARTS | WRITES)
    bucket: dict = dataclasses.field(default_factory=lambda: {"location": "US-CENTRAL1", "locationType": "region"})

    def answer(self, request: Request) -> Answer:
        assert request.headers["Authorization"] == "Bearer of-no-worth"
        match request.path.split("/")[1:]:
            case ["us-central1-aiplatform.googleapis.com", "v1", "projects", "my-project", *_, "pipelineJobs"]:
                return Answer(200, {})
            case ["cloudresourcemanager.googleapis.com", "v3", "projects", "my-project:testIamPermissions"]:
                return Answer(
                    200, {"permissions": sorted({*json.loads(request.body)["permissions"]} & self.permissions)}
                )
            case ["storage.googleapis.com", "storage", "v1", "b", "my-bucket"]:
                return Answer(200, self.bucket)
            case ["storage.googleapis.com", "storage", "v1", "b", "my-bucket", "iam", "testPermissions"]:
                return Answer(200, {"permissions": sorted(WRITES & self.permissions)})
        raise exceptions.NotFound("there is no such thing")

    def findings(self, *, project: str = "my-project", bucket: str = "gs://my-bucket", location: str = "us-central1"):
        send = AuthorizedSession.request
        with Front(0, self.answer) as front:
            here = f"http://127.0.0.1:{front.server_port}/"

            def request(session: AuthorizedSession, method: str, url: str, **rest: object):
                return send(session, method, url.replace("https://", here), **rest)

            with (
                mock.patch.object(AuthorizedSession, "request", request),
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
    assert [finding.name for finding in found] == ["project", "permissions", "bucket"]
    assert {finding.status for finding in found} == {OK}


@pytest.mark.parametrize(
    ("lacking", "name", "meaning", "repair"),
    [
        ({"permissions": WRITES}, "permissions", "no aiplatform.customJobs.create, ", "an owner: gcloud projects add"),
        ({"permissions": STARTS}, "bucket", "no storage.objects.create, ", "ask for the role Storage Object User"),
        ({"bucket": {"location": "EUROPE-WEST4"}}, "bucket", "lies in europe-west4 and the run in us-central1", "gcloud storage buckets create"),
    ],
    ids=["permissions", "bucket's permissions", "bucket elsewhere"],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_repair(lacking, name, meaning, repair):
    wrong = only_wrong(Project(**lacking).findings())
    assert (wrong.name, wrong.status) == (name, FAILED)
    assert meaning in wrong.meaning and repair in wrong.repair


def test_a_project_or_a_bucket_that_is_not_there_is_told():
    missing = {finding.name: finding for finding in Project().findings(project="another")}
    assert "project another in us-central1: there is no such thing" in missing["project"].meaning
    assert missing["bucket"].status == OK
    assert only_wrong(Project().findings(bucket="gs://another")).meaning == "no bucket another"
