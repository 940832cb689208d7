"""Tables of one's own, and the model of docs/MODELS.md, go through the pipeline."""

import json
import pathlib
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.local import runner
from pipelines.local.record import RunRecord
from tests.programs import run_python
from tests.root import blocks

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


@pytest.mark.pipeline
def test_regression_is_registered_and_predicts(tmp_path):
    source, today = tmp_path / "rows.parquet", tmp_path / "today's.parquet"
    products(source)
    products(today)
    (tmp_path / "schema.yaml").write_text(json.dumps(SCHEMA))
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    flags = [*where, "--cluster", "clusters/local.yaml", "--schema", tmp_path / "schema.yaml"]
    flags += ["--dataset", "parquet", "--source", source, "--set", f"predict={today}"]
    flags += ["--train-epochs", 60, "--threshold", "rmse=2", "r2=0.8"]
    own = ["--learning-rate", 0.003, "--schedule", "linear", "--export", "best"]
    printed = run_python("pipelines/run.py", *flags, "--", *own)
    (path,) = tmp_path.glob("runs/*/summary.json")
    summary = json.loads(path.read_text())
    metrics, model, paths = summary["metrics"], summary["model"], summary["paths"]
    assert 0.9 < metrics["rmse"] < 1.6 and metrics["r2"] > 0.85
    assert (model["verdict"], model["champion"]) == ("promote", "1")
    assert f"test rmse      {metrics['rmse']:.4f}" in printed
    evaluation = json.loads(pathlib.Path(paths["evaluation"]).read_text())
    assert evaluation["gate"]["thresholds"] == {"rmse": 2.0, "r2": 0.8}
    assert evaluation["baseline"]["rmse"] > 2
    predictions = pq.read_table(paths["predictions"])
    errors = predictions["predictions"].to_numpy() - predictions["y"].to_numpy()
    assert len(errors) == 3000 and np.sqrt(np.mean(errors**2)) < 1.6
    assert "root mean squared error" in pathlib.Path(paths["report"]).read_text()


@pytest.mark.pipeline
def test_model_of_page_becomes_version(tmp_path):
    model, prepare, _, task, *_ = blocks("MODELS.md")
    training, pipeline, *_ = blocks("MODELS.md", "sh")
    path, python, script, *flags = shlex.split(pipeline)
    assert [path, python] == ["PYTHONPATH=.", ".venv/bin/python"]
    assert shlex.split(training)[-len(flags) + 3 :] == flags[3:]  # The same training.

    (tmp_path / "mine.py").write_text(f"{model}\n\n{prepare}\n\n{task}")
    where = ["--runs-dir", tmp_path / "runs", "--registry", tmp_path / "registry"]
    line = [script, *where, "--threshold", "top_3=0.5", *flags]
    printed = run_python(*line, env={"PYTHONPATH": str(tmp_path)})
    assert "version 1 of 'mine', now the champion" in printed
    version = json.loads((tmp_path / "registry" / "mine" / "1" / "version.json").read_text())
    assert 1 > version["metrics"]["top_3"] > version["metrics"]["accuracy"] > 0.6
