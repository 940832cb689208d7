"""A study whose trainings are custom jobs."""

import csv

import pytest
import yaml

from tests.cloud.conftest import IMAGE, PIPELINE

pytestmark = [pytest.mark.cloud, pytest.mark.cloud_ci]


def test_study_to_registered_model(cloud, tmp_path):
    """Two trainings read one dataset in the bucket, and the better model is registered."""
    common = {"train_steps": 60, "min_accuracy": 0.1, "project": "demo-project", "image": IMAGE}
    common |= {"bucket": f"gs://{cloud.bucket}", "cluster": "clusters/vertex-cpu.yaml"}
    common["service_account"] = PIPELINE
    common["name"] = "tuned"  # All tests share one registry.
    study = {"asks": "?", "run": common, "space": {"batch_size": [32, 64]}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    line = f"pipelines/tune.py {tmp_path}/study.yaml --output {tmp_path}/study --backend vertex"
    assert "version 1 of tuned" in cloud.printed(f"{line} --then register")
    trials = list(csv.DictReader((tmp_path / "study" / "study.csv").open()))
    assert [trial["state"] for trial in trials] == ["complete", "complete"]
    assert len(list((cloud.files / "datasets").glob("digits-*"))) == 1
    best = max(trials, key=lambda trial: float(trial["accuracy"]))
    assert (
        f"job_dir: gs://{cloud.bucket}/studies/study/trial-00{best['trial']}"
        in (tmp_path / "study" / "best.yaml").read_text()
    )
