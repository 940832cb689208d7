"""What --explain says is in the golden files."""

import json
import re
from pathlib import Path

import pytest
from google.cloud import aiplatform_v1 as v1

from components.train.__main__ import main

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).with_name("sources")


def output(capsys: pytest.CaptureFixture, *args: str) -> str:
    assert main([str(each) for each in args]) == 0
    return capsys.readouterr().out


def test_printed_cluster_file_means_the_same(capsys: pytest.CaptureFixture, tmp_path: Path):
    def meaning(text: str) -> tuple[str, str]:
        return text.splitlines()[1], text.partition("Pools\n")[2].partition("\n\n")[0].strip()

    for path in SOURCES.glob("*.yaml"):
        if "trainingInput" not in path.read_text():
            continue
        out = output(capsys, "--cluster", path, "--explain")
        assert ("Vertex AI's TF_CONFIG gives evaluator another role" in out) == ("evaluatorCount" in path.read_text())
        (tmp_path / "cluster.yaml").write_text(out.partition("The same as a cluster file\n")[2].partition("\n\n")[0])
        assert meaning(output(capsys, "--cluster", tmp_path / "cluster.yaml", "--explain")) == meaning(out)


def test_vertex_dry_run_prints_json_alone_and_notes_beside_it(capsys: pytest.CaptureFixture):
    args = ["--cluster", SOURCES / "everything.yaml", "--backend", "vertex", "--image", "i", "--dry-run"]
    assert main([str(each) for each in args]) == 0
    out, err = capsys.readouterr()
    job = json.loads(out)
    specs = job["workerPoolSpecs"]
    assert [spec["replicaCount"] for spec in specs] == [1, 4, 1]  # --sync among its args: no parameter servers
    flags = ["--data-dir", "gs://my-bucket/data", "--train-steps", "1000", "--job-dir", "gs://my-bucket/census"]
    flags += ["--strategy", "multi_worker_mirrored"]
    assert specs[0]["containerSpec"]["args"] == flags
    assert specs[0]["diskSpec"] == {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 500}
    assert job["baseOutputDirectory"] == {"outputUriPrefix": "gs://my-bucket/census"}
    v1.CustomJobSpec.from_json(out, ignore_unknown_fields=False)
    assert re.search("gcloud ai custom-jobs create --region europe-west1 --display-name .* --config FILE", err)
    assert "replaced: " in err
    assert "note: Vertex AI's TF_CONFIG gives evaluator another role, by position" in err


def test_own_program_gets_its_arguments_as_they_are(capsys: pytest.CaptureFixture):
    args = ["--cluster", SOURCES / "everything.yaml", "--backend", "vertex", "--image", "i", "--dry-run"]
    out = output(capsys, *args, "--command", "python -m mine --x 'a b'")
    container = json.loads(out)["workerPoolSpecs"][2]["containerSpec"]
    assert container["command"] == ["python", "-m", "mine", "--x", "a b"]
    assert container["args"] == ["--data-dir", "gs://my-bucket/data", "--train-steps", "1000", "--sync"]
