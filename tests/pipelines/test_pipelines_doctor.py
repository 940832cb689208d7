"""Tests of pipelines/doctor.py on machines, images and projects that lack something."""

import ast
import sys

import pytest

from pipelines import doctor
from pipelines.vertex import checks
from tests.programs import run_python
from tests.root import ROOT

OLDEST_PYTHON = (3, 8)  # That gets more than a traceback.
WRITES = [*checks._WRITES]
ALL = [*doctor.PERMISSIONS, *WRITES]
JOBS = (
    "https://us-central1-aiplatform.googleapis.com/v1/projects/my-project/locations/us-central1/"
    "pipelineJobs"
)
PROJECT = "https://cloudresourcemanager.googleapis.com/v3/projects/my-project:testIamPermissions"


@pytest.mark.cluster
def test_machine_has_python_and_packages():
    assert run_python("pipelines/doctor.py") == "✓ python\n✓ packages\n"


def test_doctor_parses_in_old_python():
    for name in ("pipelines/doctor", "common/cli", "common/errors", "common/version"):
        ast.parse((ROOT / f"{name}.py").read_text(), feature_version=OLDEST_PYTHON)


@pytest.mark.parametrize("version", ["3.10.13", "3.11.0", "3.13.9", "3.14.0"])
def test_python_matches_pyproject(monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", tuple(map(int, version.split("."))))
    problems = [problem for problem in doctor.check_python() if f"is Python {version}; " in problem]
    assert len(problems) == (version not in ("3.11.0", "3.13.9"))


@pytest.fixture
def problems(answers):
    """Asks about a project that has all that is needed."""

    def ask(project="my-project", bucket="gs://my-bucket", permissions=ALL, location="US-CENTRAL1"):
        allowed = 200, {"permissions": permissions}
        store = "https://storage.googleapis.com/storage/v1/b/my-bucket"
        answers.update(
            {
                "": (404, {"error": {"message": "there is no such thing"}}),
                JOBS: (200, {}),
                PROJECT: allowed,
                store: (200, {"location": location, "locationType": "region"}),
                f"{store}/iam/testPermissions": allowed,
            }
        )
        return list(doctor.check_project(project, bucket, "us-central1"))

    return ask


@pytest.mark.parametrize(
    ("lacking", "meaning", "repair"),
    [
        ({"permissions": WRITES}, "no aiplatform.customJobs.create, ", "owner: gcloud projects "),
        ({"permissions": ALL[:-1]}, f"no {WRITES[-1]}; ", "ask for the role "),
        (
            {"location": "EUROPE-WEST4"},
            "lies in europe-west4 and the run in us-central1",
            "gcloud storage buckets create",
        ),
        (
            {"project": "another"},
            "project another in us-central1: there is no such thing",
            "gcloud services enable",
        ),
        ({"bucket": "gs://another"}, "no bucket another; ", "gcloud storage buckets create"),
    ],
)
def test_lack_of_project_names_repair(problems, lacking, meaning, repair):
    problem, *_ = problems(**lacking)
    assert meaning in problem and repair in problem
    assert problems() == []


def test_run_without_packages_names_repair():
    printed = run_python("-I", "-S", "pipelines/run.py", code=1)
    assert printed.count("\n") == 1
    assert "run 'make setup' once, then .venv/bin/python pipelines/run.py" in printed
