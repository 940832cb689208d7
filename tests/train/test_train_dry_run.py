"""Dry runs of Vertex AI."""

import json
from pathlib import Path

import pytest
from google.cloud import aiplatform_v1 as v1

from components.train.__main__ import main

SOURCES = Path(__file__).with_name("sources")
POOL = "{machine: n1-standard-4}"


def dry_run(capsys: pytest.CaptureFixture, cluster: Path, *words: str) -> tuple[str, str]:
    """Returns the output and the notes of a dry run of Vertex AI."""
    assert (
        main(
            ["--cluster", str(cluster), "--backend", "vertex", "--image", "i", "--dry-run", *words]
        )
        == 0
    )
    return capsys.readouterr()


def test_dry_run_prints_job_and_notes(capsys: pytest.CaptureFixture):
    out, err = dry_run(capsys, SOURCES / "everything.yaml")
    v1.CustomJobSpec.from_json(out, ignore_unknown_fields=False)
    job = json.loads(out)
    specs = job["workerPoolSpecs"]
    assert [spec["replicaCount"] for spec in specs] == [1, 4, 2, 1]
    flags = "--data-dir gs://my-bucket/data --train-steps 1000 --job-dir gs://my-bucket/census"
    assert specs[0]["containerSpec"]["args"] == [*flags.split(), "--strategy", "parameter_server"]
    assert specs[0]["diskSpec"] == {"bootDiskType": "pd-standard", "bootDiskSizeGb": 500}
    assert job["baseOutputDirectory"] == {"outputUriPrefix": "gs://my-bucket/census"}
    assert "replaced: " in err


def test_misplaced_role_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "c.yaml").write_text(f"{{strategy: one_device, chief: {POOL}, evaluator: {POOL}}}")
    _, err = dry_run(capsys, tmp_path / "c.yaml", "--command", "mine", "--job-dir", "gs://b/j")
    assert "note: Vertex AI's TF_CONFIG gives evaluator another role, by position" in err


def test_own_program_keeps_its_arguments(capsys: pytest.CaptureFixture):
    out, _ = dry_run(capsys, SOURCES / "everything.yaml", "--command", "python -m mine --x 'a b'")
    container = json.loads(out)["workerPoolSpecs"][2]["containerSpec"]
    assert container["command"] == ["python", "-m", "mine", "--x", "a b"]
    assert container["args"] == ["--data-dir", "gs://my-bucket/data", "--train-steps", "1000"]
