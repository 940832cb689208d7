"""Dry runs of Vertex AI."""

import json
from pathlib import Path

import pytest
from google.cloud import aiplatform_v1 as v1

from components.train.__main__ import main

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).with_name("sources")


def output(capsys: pytest.CaptureFixture, *args: str) -> str:
    assert main([str(each) for each in args]) == 0
    return capsys.readouterr().out


def test_vertex_dry_run_prints_json_alone_and_notes_beside_it(capsys: pytest.CaptureFixture):
    args = ["--cluster", SOURCES / "everything.yaml", "--backend", "vertex", "--image", "i", "--dry-run"]
    assert main([str(each) for each in args]) == 0
    out, err = capsys.readouterr()
    job = json.loads(out)
    specs = job["workerPoolSpecs"]
    assert [spec["replicaCount"] for spec in specs] == [1, 4, 2, 1]
    flags = ["--data-dir", "gs://my-bucket/data", "--train-steps", "1000", "--job-dir", "gs://my-bucket/census"]
    flags += ["--strategy", "parameter_server"]
    assert specs[0]["containerSpec"]["args"] == flags
    assert specs[0]["diskSpec"] == {"bootDiskType": "pd-standard", "bootDiskSizeGb": 500}
    assert job["baseOutputDirectory"] == {"outputUriPrefix": "gs://my-bucket/census"}
    v1.CustomJobSpec.from_json(out, ignore_unknown_fields=False)

    assert "replaced: " in err


def test_vertex_names_misplaced_roles(tmp_path: Path, capsys: pytest.CaptureFixture):
    pool = "{machine: n1-standard-4}"
    (tmp_path / "c.yaml").write_text(f"{{strategy: one_device, chief: {pool}, evaluator: {pool}}}")
    args = ["--cluster", tmp_path / "c.yaml", "--backend", "vertex", "--image", "i", "--dry-run"]
    assert main([*map(str, args), "--command", "mine", "--job-dir", "gs://b/j"]) == 0
    assert "note: Vertex AI's TF_CONFIG gives evaluator another role, by position" in capsys.readouterr().err


def test_own_program_gets_its_arguments_as_they_are(capsys: pytest.CaptureFixture):
    args = ["--cluster", SOURCES / "everything.yaml", "--backend", "vertex", "--image", "i", "--dry-run"]
    out = output(capsys, *args, "--command", "python -m mine --x 'a b'")
    container = json.loads(out)["workerPoolSpecs"][2]["containerSpec"]
    assert container["command"] == ["python", "-m", "mine", "--x", "a b"]
    assert container["args"] == ["--data-dir", "gs://my-bucket/data", "--train-steps", "1000"]
