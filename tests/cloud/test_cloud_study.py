"""A study whose jobs are custom jobs of Vertex AI, with dataset and job directories in a bucket."""

import csv
import shutil

import pytest

from components.convert.convert import convert
from components.convert.options import Options
from pipelines import study

STUDY = """asks: Do figures of jobs come out of a bucket?
convert: --dataset digits
train: --train-steps 60
cells: [{name: one, cluster: clusters/vertex-cpu.yaml}]
"""


@pytest.mark.cloud
def test_a_study_trains_on_vertex_and_finds_its_figures_in_the_bucket(cloud, tmp_path):
    convert(Options(dataset="digits", output=str(tmp_path / "data"), shards=2))
    shutil.copytree(tmp_path / "data", cloud.files / "data")
    (tmp_path / "study.yaml").write_text(STUDY)
    bucket, image = f"gs://{cloud.bucket}", f"us-docker.pkg.dev/demo-project/training/image@sha256:{'0' * 64}"
    asked = [str(tmp_path / "study.yaml"), "--output", str(tmp_path / "out"), "--repeats", "1", "--backend", "vertex"]
    asked += ["--data-dir", f"{bucket}/data", "--job-dirs", f"{bucket}/jobs"]
    assert study.main([*asked, "--", "--project", "demo-project", "--image", image]) == 0
    (run,) = csv.DictReader((tmp_path / "out" / "study.csv").read_text().splitlines())
    assert (run["job_dir"], run["replicas"], run["steps"]) == (f"{bucket}/jobs/one-0", "2", "60")
    assert float(run["score"]) > 0.5 and len(list((cloud.files / "jobs" / "one-0").glob("journal-*.jsonl"))) == 2
