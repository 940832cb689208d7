"""The spec for Kubeflow Pipelines with all files in a bucket."""

import json

import pytest
from google.cloud import aiplatform

from tests.cloud.conftest import IMAGE, PIPELINE
from tests.cloud.iam import host
from tests.compiled_spec import run_here

pytestmark = pytest.mark.cloud


def test_bucket_holds_run_of_other_server(cloud, tmp_path, monkeypatch):
    place = f"--bucket gs://{cloud.bucket} --image {IMAGE}"
    flags = f"{place} --project demo-project --name {cloud.bucket} --train-steps 20"
    back_end = f"--set 'train_args=--backend process --log-dir {tmp_path}/logs'"
    shown = cloud.printed(f"pipelines/submit.py --kfp-host http://x --dry-run {flags} {back_end}")
    values = json.loads(shown)
    cloud.printed(f"pipelines/compile.py --image {IMAGE} --output-dir {tmp_path}")
    values["job_dir"] = f"gs://{cloud.bucket}/runs"  # The spec is for many runs.
    monkeypatch.setenv("GCE_METADATA_HOST", host(PIPELINE, cloud.bucket))
    ended = run_here(tmp_path / "training-kubeflow.yaml", values, tmp_path / "artifacts")
    assert ended.returncode == 0, ended.stdout
    [job_dir] = cloud.files.glob("runs/*/job")
    assert json.loads((job_dir / "DONE.json").read_text())["step"] == 20
    [model] = aiplatform.Model.list(filter=f'display_name="{cloud.bucket}"')
    assert "champion" in model.version_aliases
