"""What a submission finds wrong before anything is made: a row for each rule, each against the cloud as it would be."""

import pathlib
from unittest import mock

import pytest
from google.cloud import aiplatform

from common.errors import UserError
from pipelines import submit
from pipelines.vertex.submission import Submission

IMAGE = "us-docker.pkg.dev/demo-project/training/image@sha256:"
ONE = "{strategy: one_device, chief: {machine: n1-standard-8}}"
pytestmark = pytest.mark.cloud


@pytest.fixture(autouse=True)
def _connected(cloud):
    with mock.patch.dict(vars(aiplatform.initializer.global_config)):
        yield


def _flags(cloud, tmp_path: pathlib.Path, *flags: str) -> list[str]:
    (tmp_path / "cluster.yaml").write_text(ONE)
    place = [
        "--project",
        "demo-project",
        "--bucket",
        f"gs://{cloud.bucket}",
        "--image",
        IMAGE + "0" * 64,
    ]
    return [*place, "--cluster", str(tmp_path / "cluster.yaml"), *flags]


def _buckets(cloud) -> list[str]:
    """Of this test alone: others make theirs at the same time."""
    return sorted(path.name for path in cloud.files.parent.glob(f"{cloud.bucket}*"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project", "their-project"], "Vertex AI: .*Permission denied"),
        (["--image", IMAGE + "f" * 64], "no image us-docker.pkg.dev/.*; build and push it"),
    ],
)
def test_mistake_is_one_line_and_nothing_is_made(cloud, tmp_path, flags, message):
    before = _buckets(cloud)
    with pytest.raises(UserError, match=message) as raised:
        submit.main(_flags(cloud, tmp_path, "--yes", *flags))
    assert "\n" not in str(raised.value)
    assert _buckets(cloud) == before
    assert not [path for path in cloud.files.rglob("*") if path.name == "run.json"]


def test_account_of_ours_passes(cloud, tmp_path):
    flags = _flags(
        cloud, tmp_path, "--service-account", "robot@demo-project.iam.gserviceaccount.com"
    )
    with (
        mock.patch("sys.stdin.isatty", lambda: False),
        pytest.raises(UserError, match="nobody can be asked here"),
    ):
        submit.main(flags)


def test_run_that_vertex_refuses_leaves_nothing(cloud, tmp_path, monkeypatch):
    request = Submission.request
    elsewhere = {"parent": "projects/their-project/locations/us-central1"}
    monkeypatch.setattr(Submission, "request", lambda *asked: request(*asked) | elsewhere)
    with pytest.raises(UserError, match=r"Vertex AI: .*Permission denied"):
        submit.main(_flags(cloud, tmp_path, "--yes"))
    assert not list(cloud.files.iterdir())


def test_whoever_is_not_logged_in_is_told_how(cloud, tmp_path, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    done = cloud.run("pipelines/submit.py", *_flags(cloud, tmp_path, "--yes"))
    said = done.communicate()[0]
    assert (
        done.returncode == 2
        and "run: gcloud auth application-default login" in said
        and said.count("\n") == 1
    ), said
