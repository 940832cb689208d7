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
GPU = "{strategy: one_device, chief: {machine: n1-standard-8, accelerator: {type: NVIDIA_TESLA_T4}}}"
pytestmark = pytest.mark.cloud


@pytest.fixture(autouse=True)
def _connected(cloud):
    with mock.patch.dict(vars(aiplatform.initializer.global_config)):
        yield


def _asked(cloud, tmp_path: pathlib.Path, cluster: str, *flags: str) -> list[str]:
    (tmp_path / "cluster.yaml").write_text(cluster)
    place = ["--project", "demo-project", "--bucket", f"gs://{cloud.bucket}", "--image", IMAGE + "0" * 64]
    return [
        *place,
        "--cluster",
        str(tmp_path / "cluster.yaml"),
        "--yes",
        *(f.format(bucket=cloud.bucket) for f in flags),
    ]


def _buckets(cloud) -> list[str]:
    """Of this test alone: others make theirs at the same time."""
    return sorted(path.name for path in cloud.files.parent.glob(f"{cloud.bucket}*"))


@pytest.mark.parametrize(
    ("flags", "cluster", "message"),
    [
        (
            ["--project", "their-project"],
            ONE,
            "project their-project in us-central1: Permission denied.*Vertex AI User",
        ),
        (["--image", IMAGE + "f" * 64], ONE, "no image us-docker.pkg.dev/.*; build and push it"),
        ([], GPU, "the cluster has GPUs, and the image is one for CPUs"),
        (["--dataset", "mnist", "--source", "gs://{bucket}/dat"], ONE, "--source gs://.*/dat: there is nothing"),
    ],
)
def test_mistake_is_one_line_and_nothing_is_made(cloud, tmp_path, flags, cluster, message):
    (cloud.files / "data").mkdir()
    (cloud.files / "data" / "a.csv").write_text("1")
    before = _buckets(cloud)
    with pytest.raises(UserError, match=message) as raised:
        submit.main(_asked(cloud, tmp_path, cluster, *flags))
    assert "\n" not in str(raised.value)
    assert _buckets(cloud) == before
    assert not [path for path in cloud.files.rglob("*") if path.name == "run.json"]


@pytest.mark.parametrize("source", ["data", "data/a.csv", ""])
def test_a_source_that_is_there_a_gpu_image_and_an_account_of_ours_pass(cloud, tmp_path, source):
    (cloud.files / "data").mkdir()
    (cloud.files / "data" / "a.csv").write_text("1")
    account = "robot@demo-project.iam.gserviceaccount.com"
    flags = ["--image", IMAGE + "1" * 64, "--service-account", account, "--dataset", "mnist", "--source"]
    asked = _asked(cloud, tmp_path, GPU, *flags, f"gs://{cloud.bucket}/{source}".rstrip("/"))
    with mock.patch("sys.stdin.isatty", lambda: False), pytest.raises(UserError, match="nobody can be asked here"):
        submit.main([flag for flag in asked if flag != "--yes"])


def test_a_run_that_vertex_ai_itself_refuses_leaves_nothing(cloud, tmp_path, monkeypatch):
    request = Submission.request
    elsewhere = {"parent": "projects/their-project/locations/us-central1"}
    monkeypatch.setattr(Submission, "request", lambda self, job_id: request(self, job_id) | elsewhere)
    with pytest.raises(UserError, match="Vertex AI refused: Permission denied"):
        submit.main(_asked(cloud, tmp_path, ONE))
    assert not list(cloud.files.iterdir())


def test_whoever_is_not_logged_in_is_told_how(cloud, tmp_path, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:1")
    done = cloud.run("pipelines/submit.py", *_asked(cloud, tmp_path, ONE))
    said = done.communicate()[0]
    assert done.returncode == 2 and "run: gcloud auth application-default login" in said and said.count("\n") == 1, said
