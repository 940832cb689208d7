"""Tests of pipelines/doctor.py on machines, images and projects that lack something."""

import ast
import dataclasses
import json
import pathlib
import subprocess
import sys
from unittest import mock

import pytest
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials

from common.errors import UserError
from pipelines import doctor
from pipelines.vertex import checks
from tests.cloud.front import Answer, Front, Request

ROOT = pathlib.Path(__file__).parents[2]
OLDEST_PYTHON = (3, 8)  # That gets more than a traceback.
WRITES = set(checks._WRITES)
BUCKET = {"location": "US-CENTRAL1", "locationType": "region"}


@pytest.mark.cluster
def test_machine_has_python_and_packages():
    line = [sys.executable, "pipelines/doctor.py"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "✓ python\n✓ packages\n")


def test_doctor_parses_in_old_python():
    for name in ("pipelines/doctor", "common/cli", "common/errors", "common/version"):
        ast.parse((ROOT / f"{name}.py").read_text(), feature_version=OLDEST_PYTHON)


def test_problems_before_an_error_are_printed(capsys):
    def check():
        yield "full; free some"
        raise UserError("no access")

    assert doctor.has_problems("disk", check())
    assert capsys.readouterr().out == "✗ disk: full; free some\n✗ disk: no access\n"


@pytest.mark.parametrize("version", ["2.7.18", "3.10.13", "3.11.0", "3.13.9", "3.14.0"])
def test_python_matches_pyproject(monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", tuple(map(int, version.split("."))))
    problems = "\n".join(doctor.check_python())
    if version in ("3.11.0", "3.13.9"):
        assert not problems
    else:
        assert f"is Python {version}; " in problems and "make setup" in problems


def test_modules_that_fail_are_named(monkeypatch, tmp_path):
    package = tmp_path / "doctored"
    (package / "inner").mkdir(parents=True)
    modules = {"__init__": "", "a": "import no_such_library", "inner/__init__": "1 / 0", "z": ""}
    for name, text in modules.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor, "PACKAGES", ("doctored",))
    first, second = doctor.check_modules()
    assert first.startswith("doctored.a (ModuleNotFoundError(")
    assert second.startswith("doctored.inner (ZeroDivisionE")


@dataclasses.dataclass(kw_only=True)
class Project:
    """A project that has all that is needed, by a server that answers for Google."""

    permissions: set[str] = dataclasses.field(
        default_factory=lambda: {*doctor.PERMISSIONS, *WRITES}
    )
    bucket: dict[str, str] = dataclasses.field(default_factory=lambda: BUCKET)

    def answer(self, request: Request) -> Answer:
        assert request.headers["Authorization"] == "Bearer of-no-worth"
        asked = json.loads(request.body)["permissions"] if request.body else WRITES
        allowed = {"permissions": sorted({*asked} & self.permissions)}
        jobs = "us-central1-aiplatform.googleapis.com/v1/projects/my-project/locations/us-central1"
        projects = "cloudresourcemanager.googleapis.com/v3/projects"
        bucket = "storage.googleapis.com/storage/v1/b/my-bucket"
        answers = {
            f"/{jobs}/pipelineJobs": {},
            f"/{projects}/my-project:testIamPermissions": allowed,
            f"/{bucket}": self.bucket,
            f"/{bucket}/iam/testPermissions": allowed,
        }
        if request.path in answers:
            return Answer(200, answers[request.path])
        return Answer(404, {"error": {"message": "there is no such thing"}})

    def problems(self, *, project: str = "my-project", bucket: str = "gs://my-bucket") -> list[str]:
        send = AuthorizedSession.request
        with Front(0, self.answer) as front:
            here = f"http://127.0.0.1:{front.server_port}/"

            def request(session: AuthorizedSession, method: str, url: str, **rest: object):
                return send(session, method, url.replace("https://", here), **rest)

            identity = (Credentials("of-no-worth"), None)
            with (
                mock.patch.object(AuthorizedSession, "request", request),
                mock.patch("google.auth.default", return_value=identity),
            ):
                problems = list(doctor.check_project(project, bucket, "us-central1"))
            front.shutdown()
        return problems


def test_complete_project_is_right():
    assert Project().problems() == []


@pytest.mark.parametrize(
    ("lacking", "meaning", "repair"),
    [
        (
            {"permissions": WRITES},
            "no aiplatform.customJobs.create, ",
            "an owner: gcloud projects ",
        ),
        (
            {"permissions": {*doctor.PERMISSIONS}},
            "no storage.objects.create, ",
            "ask for the role ",
        ),
        (
            {"bucket": BUCKET | {"location": "EUROPE-WEST4"}},
            "lies in europe-west4 and the run in us-central1",
            "gcloud storage buckets create",
        ),
    ],
    ids=["permissions", "bucket's permissions", "bucket elsewhere"],
)
def test_missing_right_names_its_repair(lacking, meaning, repair):
    [problem] = Project(**lacking).problems()
    assert meaning in problem and repair in problem


def test_missing_project_or_bucket_is_named():
    problem = Project().problems(project="another")[0]
    assert "project another in us-central1: there is no such thing" in problem
    assert Project().problems(bucket="gs://another")[0].startswith("no bucket another; ")
