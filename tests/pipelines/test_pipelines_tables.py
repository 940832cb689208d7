"""A table of one's own goes through the pipeline with its schema."""

import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trips

from common.manifest import Manifest
from pipelines.local import runner
from pipelines.local.record import RunRecord

SCHEMA = {
    "name": "products",
    "origin": "drawn",
    "columns": {name: {"type": "float"} for name in "abcy"},
    "label": {"regression": "y"},
    "deep": [{"column": name, "numeric": "z_score"} for name in "abc"],
}


def products(path):
    """Writes 3,000 rows, whose target has a standard deviation of 3.5, of which 1 is noise."""
    draw = np.random.default_rng(0)
    a, b, c = draw.random((3, 3000))
    columns = {"a": a, "b": b, "c": c, "y": 15 * a * b + draw.normal(size=3000)}
    pq.write_table(pa.table(columns), path, row_group_size=900)


def test_container_sees_only_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "check_engine", lambda _: True)
    runs, registry, *sources = (str(tmp_path / name) for name in ("runs", "r", "a.csv", "b.csv"))
    facts = {"id": "r", "runner": "docker", "image": "i", "dataset": "csv", "cluster": "c.yaml"}
    arguments = {"registry": registry, "run_dir": f"{runs}/r"}
    record = RunRecord(**facts, sources=sources, arguments=arguments)
    options = runner._runner(record).container_run_args
    assert (options["user"], options["read_only"], options["cap_drop"]) == ("0:0", True, ["ALL"])
    assert options["security_opt"] == ["no-new-privileges"]
    mounts = [(mount["Source"], mount["ReadOnly"]) for mount in options["mounts"]]
    assert mounts == [(runs, False), (registry, False), *((source, True) for source in sources)]


def run(command, place, *flags):
    """Runs the pipeline in a place, and returns the summary with what was printed."""
    where = ("--runs-dir", place / "runs", "--registry", place / "registry")
    local = ("--cluster", "clusters/local.yaml")
    done = command("pipelines/run.py", *local, *where, "--schema", place / "schema.yaml", *flags)
    newest = max((place / "runs").glob("*/summary.json"))
    return {**json.loads(newest.read_text()), "printed": done.stdout}


@pytest.mark.pipeline
def test_own_table_goes_through_pipeline(command, tmp_path):
    trips.write(tmp_path)
    flags = ("--dataset", "csv", "--source", tmp_path / "rows.csv", "--train-steps", 60)
    first = run(command, tmp_path, *flags, "--set", "min_auc=0.6")
    manifest = Manifest.load(first["paths"]["dataset"])
    assert sum(split.examples for split in manifest.splits.values()) == len(trips.rows())
    assert first["model"]["name"] == "trips" and first["model"]["verdict"]
    evaluation = json.loads(pathlib.Path(first["paths"]["evaluation"]).read_text())
    assert evaluation["gate"]["thresholds"]["auc"] == 0.6
    assert evaluation["baseline"]["rule"] == "best single column, company"
    assert f"test auc       {first['metrics']['auc']:.4f}" in first["printed"]
    schema = tmp_path / "schema.yaml"
    schema.write_text(schema.read_text(encoding="utf-8").replace("made up", "elsewhere"))
    second = run(command, tmp_path, *flags, "--model", "wide_deep", "--", "--hidden-units", "8,4")
    assert Manifest.load(second["paths"]["dataset"]).origin == "elsewhere"


@pytest.mark.pipeline
def test_regression_is_registered_and_predicts(command, tmp_path):
    source, today = tmp_path / "rows.parquet", tmp_path / "today's.parquet"
    products(source)
    products(today)
    (tmp_path / "schema.yaml").write_text(json.dumps(SCHEMA))
    flags = ["--dataset", "parquet", "--source", source, "--set", f"predict={today}"]
    flags += ["--train-epochs", 60, "--threshold", "rmse=2", "r2=0.8"]
    own = ["--learning-rate", 0.003, "--schedule", "linear", "--export", "best"]
    summary = run(command, tmp_path, *flags, "--", *own)
    metrics, model, paths = summary["metrics"], summary["model"], summary["paths"]
    assert 0.9 < metrics["rmse"] < 1.6 and metrics["r2"] > 0.85
    assert (model["verdict"], model["champion"]) == ("promote", "1")
    assert f"test rmse      {metrics['rmse']:.4f}" in summary["printed"]
    evaluation = json.loads(pathlib.Path(paths["evaluation"]).read_text())
    assert evaluation["gate"]["thresholds"] == {"rmse": 2.0, "r2": 0.8}
    assert evaluation["baseline"]["rmse"] > 2
    predictions = pq.read_table(paths["predictions"])
    errors = predictions["predictions"].to_numpy() - predictions["y"].to_numpy()
    assert len(errors) == 3000 and np.sqrt(np.mean(errors**2)) < 1.6
    assert "root mean squared error" in pathlib.Path(paths["report"]).read_text()
