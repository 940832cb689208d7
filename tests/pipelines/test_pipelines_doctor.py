"""What pipelines/doctor.py says of machines, images and projects that lack something."""

import ast
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from unittest import mock

import pytest
from google.api_core import exceptions
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials

from common.errors import UserError
from pipelines import doctor
from pipelines.doctor import FAILED, OK, WARNING, Finding
from pipelines.vertex import checks
from tests.cloud.front import Answer, Front, Request

ROOT = pathlib.Path(__file__).parents[2]
LINE = re.compile(r"^([✓!✗]) (\S+) +(.*)(?:\n +-> (.*))?$", re.MULTILINE)
OLDEST_PYTHON = (3, 8)  # that is told more than a traceback
WRITES = set(checks._WRITES)


@pytest.mark.cluster
def test_machine_has_python_and_packages():
    line = [sys.executable, "pipelines/doctor.py"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    findings = {name: (mark, meaning, repair) for mark, name, meaning, repair in LINE.findall(done.stdout)}
    assert list(findings) == ["python", "packages", "memory", "disk"]
    assert findings["python"][0] == findings["packages"][0] == "✓"
    assert findings["python"][1].startswith(sys.version.split()[0])
    assert done.returncode == any(mark == "✗" for mark, _, _ in findings.values())
    assert all(bool(repair) == (mark != "✓") for mark, _, repair in findings.values())


def test_doctor_parses_in_old_python():
    for name in ("pipelines/doctor", "common/cli", "common/errors", "common/version"):
        ast.parse((ROOT / f"{name}.py").read_text(), feature_version=OLDEST_PYTHON)


def finding(check) -> Finding:
    [only] = doctor.run_checks({"check": check})
    assert bool(only.repair) == (only.status != OK)
    return only


def test_check_without_its_package_is_passed_over():
    def check():
        raise ModuleNotFoundError

    assert not list(doctor.run_checks({"check": check}))


@pytest.mark.parametrize(
    ("version", "status"),
    [((2, 7, 18), FAILED), ((3, 10, 13), FAILED), ((3, 11, 0), OK), ((3, 13, 9), OK), ((3, 14, 0), FAILED)],
)
def test_python_matches_pyproject(monkeypatch, version, status):
    monkeypatch.setattr(sys, "version_info", version)
    python = finding(doctor.check_python)
    assert python.status == status
    assert ".".join(map(str, version)) in python.meaning


def test_modules_that_fail_are_named(monkeypatch, tmp_path):
    package = tmp_path / "doctored"
    (package / "inner").mkdir(parents=True)
    for name, text in {"__init__": "", "a": "import no_such_library", "inner/__init__": "1 / 0", "z": ""}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor, "PACKAGES", ("doctored",))
    modules = finding(doctor.check_modules)
    assert modules.status == FAILED
    assert modules.meaning.startswith("2 of 3 modules cannot be imported: doctored.a (ModuleNotFoundError: No module")
    assert "doctored.inner (ZeroDivisionError" in modules.meaning and "doctored.z" not in modules.meaning


def test_image_says_its_version(monkeypatch):
    monkeypatch.setenv("CODE_VERSION", "0123abc")
    assert finding(doctor.check_version).meaning.startswith("0123abc, TensorFlow 2.")
    monkeypatch.delenv("CODE_VERSION")
    assert finding(doctor.check_version).status == WARNING


@pytest.mark.parametrize(("free_gb", "status"), [(2, WARNING), (50, OK)])
def test_little_disk_is_a_warning(monkeypatch, free_gb, status):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: mock.Mock(free=free_gb * 1e9))
    assert finding(doctor.check_disk).status == status


def test_unwritable_disk_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=f"{tmp_path}/nowhere cannot be written .*; free some"):
        doctor.check_disk()


@pytest.mark.parametrize(("free_gb", "status"), [(1.5, WARNING), (8, OK)])
def test_little_memory_is_a_warning(monkeypatch, free_gb, status):
    monkeypatch.setattr("common.machine.available_bytes", lambda: free_gb * 1e9)
    assert finding(doctor.check_memory).status == status


def test_project_without_credentials(tmp_path, monkeypatch):
    nobody = {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "GCE_METADATA_HOST": "127.0.0.1:1"}
    for name, value in {**nobody, "GOOGLE_APPLICATION_CREDENTIALS": ""}.items():
        monkeypatch.setenv(name, value)
    [credentials] = doctor.check_project("my-project", "gs://my-bucket", "us-central1")
    assert (credentials.name, credentials.status) == ("credentials", FAILED)
    assert credentials.repair.endswith("gcloud auth application-default login")


@dataclasses.dataclass(kw_only=True)
class Project:
    """A project that has all that is needed, until a test takes something away. A server here answers for Google."""

    permissions: set[str] = dataclasses.field(default_factory=lambda: doctor.PERMISSIONS | WRITES)
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

    def findings(self, *, project: str = "my-project", bucket: str = "gs://my-bucket") -> dict[str, Finding]:
        send = AuthorizedSession.request
        with Front(0, self.answer) as front:
            here = f"http://127.0.0.1:{front.server_port}/"

            def request(session: AuthorizedSession, method: str, url: str, **rest: object):
                return send(session, method, url.replace("https://", here), **rest)

            with (
                mock.patch.object(AuthorizedSession, "request", request),
                mock.patch("google.auth.default", lambda scopes: (Credentials("of-no-worth"), None)),
            ):
                findings = {each.name: each for each in doctor.check_project(project, bucket, "us-central1")}
            front.shutdown()
        assert all(bool(each.repair) == (each.status != OK) for each in findings.values())
        return findings


def only_wrong(findings: dict[str, Finding]) -> Finding:
    [wrong] = [each for each in findings.values() if each.status != OK]
    return wrong


def test_complete_project_is_right():
    findings = Project().findings()
    assert list(findings) == ["project", "permissions", "bucket"]
    assert {each.status for each in findings.values()} == {OK}


@pytest.mark.parametrize(
    ("lacking", "name", "meaning", "repair"),
    [
        ({"permissions": WRITES}, "permissions", "no aiplatform.customJobs.create, ", "an owner: gcloud projects add"),
        ({"permissions": doctor.PERMISSIONS}, "bucket", "no storage.objects.create, ", "ask for the role Storage Object User"),
        ({"bucket": {"location": "EUROPE-WEST4"}}, "bucket", "lies in europe-west4 and the run in us-central1", "gcloud storage buckets create"),
    ],
    ids=["permissions", "bucket's permissions", "bucket elsewhere"],
)  # fmt: skip
def test_missing_right_names_its_repair(lacking, name, meaning, repair):
    wrong = only_wrong(Project(**lacking).findings())
    assert (wrong.name, wrong.status) == (name, FAILED)
    assert meaning in wrong.meaning and repair in wrong.repair


def test_missing_project_or_bucket_is_named():
    findings = Project().findings(project="another")
    assert "project another in us-central1: there is no such thing" in findings["project"].meaning
    assert findings["bucket"].status == OK
    assert only_wrong(Project().findings(bucket="gs://another")).meaning == "no bucket another"
