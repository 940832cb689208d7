"""Tests of the checks of a submission before anything is made."""

import re

import pytest

from tests.cloud.conftest import IMAGE, ONE, YOU

pytestmark = pytest.mark.cloud


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--project their-project", "Vertex AI: .*Permission"),
        (f"--image {IMAGE[:-64]}{'f' * 64}", "no image us-docker.pkg.dev/.*; build and push it"),
        ("", "Vertex AI: .*Permission 'aiplatform.pipelineJobs.create' denied .*docs/PROJECT.md"),
    ],
)
def test_refused_submission_leaves_nothing(cloud, flags, message):
    if not flags:  # It is refused as the last thing.
        cloud.allow("projects/demo-project", "aiplatform.user", YOU)
    printed = cloud.printed(f"pipelines/submit.py --yes {cloud.flags(ONE)} {flags}", code=2)
    assert re.search(f"error: {message}.*\n$", printed) and not list(cloud.files.iterdir())


def test_missing_login_is_told(cloud, monkeypatch):
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, "127.0.0.1:1")
    printed = cloud.printed(f"pipelines/submit.py --yes {cloud.flags(ONE)}", code=2)
    assert "run: gcloud auth application-default login" in printed and printed.count("\n") == 1
