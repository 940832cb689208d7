"""What pipelines/doctor.py says of machines, images and projects that lack something."""

import ast
import dataclasses
import json
import pathlib
import subprocess
import sys
from unittest import mock

import pytest
from google.api_core import exceptions
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials

from common.errors import UserError
from pipelines import doctor
from pipelines.vertex import checks
from tests.cloud.front import Answer, Front, Request

ROOT = pathlib.Path(__file__).parents[2]
OLDEST_PYTHON = (3, 8)  # that is told more than a traceback
WRITES = set(checks._WRITES)


@pytest.mark.cluster
def test_machine_has_python_and_packages():
    done = subprocess.run(
        [sys.executable, "pipelines/doctor.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "✓ python\n✓ packages\n")


def test_doctor_parses_in_old_python():
    for name in ("pipelines/doctor", "common/cli", "common/errors", "common/version"):
        ast.parse((ROOT / f"{name}.py").read_text(), feature_version=OLDEST_PYTHON)


@pytest.mark.parametrize(
    ("problems", "printed"),
    [([], "✓ disk\n"), (["full; free some", "slow"], "✗ disk: full; free some\n✗ disk: slow\n")],
)
def test_problems_are_printed(capsys, problems, printed):
    assert doctor.has_problems("disk", problems) is bool(problems)
    assert capsys.readouterr().out == printed


def test_problems_before_an_error_are_printed(capsys):
    def check():
        yield "full; free some"
        raise UserError("no access")

    assert doctor.has_problems("disk", check())
    assert capsys.readouterr().out == "✗ disk: full; free some\n✗ disk: no access\n"


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [
        ((2, 7, 18), False),
        ((3, 10, 13), False),
        ((3, 11, 0), True),
        ((3, 13, 9), True),
        ((3, 14, 0), False),
    ],
)
def test_python_matches_pyproject(monkeypatch, version, is_supported):
    monkeypatch.setattr(sys, "version_info", version)
    problems = list(doctor.check_python())
    assert bool(problems) is not is_supported
    assert all(
        ".".join(map(str, version)) in problem and "make setup" in problem for problem in problems
    )


def test_modules_that_fail_are_named(monkeypatch, tmp_path):
    package = tmp_path / "doctored"
    (package / "inner").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "a": "import no_such_library",
        "inner/__init__": "1 / 0",
        "z": "",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor, "PACKAGES", ("doctored",))
    first, second = doctor.check_modules()
    assert first.startswith("doctored.a (ModuleNotFoundError(") and second.startswith(
        "doctored.inner (ZeroDivisionE"
    )


def test_project_without_credentials(tmp_path, monkeypatch):
    nobody = {
        "HOME": str(tmp_path),
        "CLOUDSDK_CONFIG": str(tmp_path),
        "GCE_METADATA_HOST": "127.0.0.1:1",
    }
    for name, value in {**nobody, "GOOGLE_APPLICATION_CREDENTIALS": ""}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=r"gcloud auth application-default login$"):
        list(doctor.check_project("my-project", "gs://my-bucket", "us-central1"))


@dataclasses.dataclass(kw_only=True)
class Project:
    """A project that has all that is needed, until a test takes something away. A server here answers for Google."""

    permissions: set[str] = dataclasses.field(
        default_factory=lambda: {*doctor.PERMISSIONS, *WRITES}
    )
    bucket: dict = dataclasses.field(
        default_factory=lambda: {"location": "US-CENTRAL1", "locationType": "region"}
    )

    def answer(self, request: Request) -> Answer:
        assert request.headers["Authorization"] == "Bearer of-no-worth"
        match request.path.split("/")[1:]:
            case [
                "us-central1-aiplatform.googleapis.com",
                "v1",
                "projects",
                "my-project",
                *_,
                "pipelineJobs",
            ]:
                return Answer(200, {})
            case [
                "cloudresourcemanager.googleapis.com",
                "v3",
                "projects",
                "my-project:testIamPermissions",
            ]:
                return Answer(
                    200,
                    {
                        "permissions": sorted(
                            {*json.loads(request.body)["permissions"]} & self.permissions
                        )
                    },
                )
            case ["storage.googleapis.com", "storage", "v1", "b", "my-bucket"]:
                return Answer(200, self.bucket)
            case [
                "storage.googleapis.com",
                "storage",
                "v1",
                "b",
                "my-bucket",
                "iam",
                "testPermissions",
            ]:
                return Answer(200, {"permissions": sorted(WRITES & self.permissions)})
        raise exceptions.NotFound("there is no such thing")

    def problems(self, *, project: str = "my-project", bucket: str = "gs://my-bucket") -> list[str]:
        send = AuthorizedSession.request
        with Front(0, self.answer) as front:
            here = f"http://127.0.0.1:{front.server_port}/"

            def request(session: AuthorizedSession, method: str, url: str, **rest: object):
                return send(session, method, url.replace("https://", here), **rest)

            with (
                mock.patch.object(AuthorizedSession, "request", request),
                mock.patch(
                    "google.auth.default", lambda scopes: (Credentials("of-no-worth"), None)
                ),
            ):
                problems = list(doctor.check_project(project, bucket, "us-central1"))
            front.shutdown()
        return problems


def test_complete_project_is_right():
    assert Project().problems() == []


@pytest.mark.parametrize(
    ("lacking", "meaning", "repair"),
    [
        ({"permissions": WRITES}, "no aiplatform.customJobs.create, ", "an owner: gcloud projects "
            "add"),
        ({"permissions": {*doctor.PERMISSIONS}}, "no storage.objects.create, ", "ask for the role "
            "Storage Object User"),
        ({"bucket": {"location": "EUROPE-WEST4"}}, "lies in europe-west4 and the run in "
            "us-central1", "gcloud storage buckets create"),
    ],
    ids=["permissions", "bucket's permissions", "bucket elsewhere"],
)  # fmt: skip
def test_missing_right_names_its_repair(lacking, meaning, repair):
    [problem] = Project(**lacking).problems()
    assert meaning in problem and repair in problem


def test_missing_project_or_bucket_is_named():
    assert (
        "project another in us-central1: there is no such thing"
        in Project().problems(project="another")[0]
    )
    assert Project().problems(bucket="gs://another")[0].startswith("no bucket another; ")
