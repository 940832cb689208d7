"""What pipelines/doctor.py says of machines that lack something, as a user starts it."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

from pipelines.doctoring import project_checks
from pipelines.doctoring.findings import FAILED

ROOT = pathlib.Path(__file__).parents[2]
STATUS = {"✓": "ok", "!": "warning", "✗": "failed"}
LINE = re.compile(r"^([✓!✗]) (\S+) +(.*)(?:\n +-> (.*))?$", re.MULTILINE)
OLD = [3, 8]  # the oldest Python that is told more than a traceback


def doctor() -> dict[str, dict]:
    """Findings by name. The exit code says whether one of them has failed."""
    line = [sys.executable, "pipelines/doctor.py"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    keys = ("name", "status", "meaning", "repair")
    found = {
        name: dict(zip(keys, (name, STATUS[mark], *told), strict=True))
        for mark, name, *told in LINE.findall(done.stdout)
    }
    assert done.returncode == any(finding["status"] == "failed" for finding in found.values())
    assert all(bool(finding["repair"]) == (finding["status"] != "ok") for finding in found.values())
    return found


@pytest.mark.cluster
def test_on_this_machine_python_and_packages_are_right():
    found = doctor()
    assert list(found) == ["python", "packages", "memory", "disk"]
    assert {found["python"]["status"], found["packages"]["status"]} == {"ok"}
    assert found["python"]["meaning"].startswith(sys.version.split()[0])


def test_what_an_old_python_reads_of_the_doctor_is_in_its_language():
    ours = ["pipelines/doctor", "pipelines/doctoring/findings", "pipelines/doctoring/machine_checks"]
    for name in [*ours, "common/cli", "common/errors", "common/version"]:
        ast.parse((ROOT / f"{name}.py").read_text(), feature_version=tuple(OLD))


def test_without_credentials_a_project_is_not_asked_for(tmp_path, monkeypatch):
    nobody = {"HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path), "GCE_METADATA_HOST": "127.0.0.1:1"}
    for name, value in {**nobody, "GOOGLE_APPLICATION_CREDENTIALS": ""}.items():
        monkeypatch.setenv(name, value)
    [found] = project_checks.checks("my-project", "gs://my-bucket", "us-central1")
    assert (found.name, found.status) == ("credentials", FAILED)
    assert found.repair.endswith("gcloud auth application-default login")
