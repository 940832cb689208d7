"""Tests of the checks of a submission before anything is made."""

import pytest

from common.errors import UserError
from pipelines import submit
from pipelines.vertex.submission import Submission
from tests.cloud.conftest import IMAGE, ONE

pytestmark = pytest.mark.cloud


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--project their-project", "Vertex AI: .*Permission denied"),
        (f"--image {IMAGE[:-64]}{'f' * 64}", "no image us-docker.pkg.dev/.*; build and push it"),
        ("--location europe-west4", ""),
    ],
)
def test_refused_submission_leaves_nothing(cloud, monkeypatch, flags, message):
    if not message:  # It is refused as the last thing.
        request = Submission.request
        elsewhere = {"parent": "projects/their-project/locations/us-central1"}
        monkeypatch.setattr(Submission, "request", lambda *asked: request(*asked) | elsewhere)
        flags, message = "", "Vertex AI: .*Permission denied"
    with pytest.raises(UserError, match=message) as raised:
        submit.main(f"--yes {cloud.flags(ONE)} {flags}".split())
    assert "\n" not in str(raised.value) and not list(cloud.files.iterdir())


def test_missing_login_is_told(cloud, monkeypatch):
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):
        monkeypatch.setenv(name, "127.0.0.1:1")
    printed = cloud.printed(f"pipelines/submit.py --yes {cloud.flags(ONE)}", code=2)
    assert "run: gcloud auth application-default login" in printed and printed.count("\n") == 1
