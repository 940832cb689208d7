"""A table of one's own goes through the pipeline with its schema."""

import json
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trips
import yaml

from common.manifest import Manifest
from pipelines.local.record import RunRecord

# Friedman 1991, "Multivariate adaptive regression splines", section 4.3: half of the columns say
# nothing.
FRIEDMAN = {
    "name": "friedman",
    "origin": "drawn",
    "columns": {
        **{f"x{i}": {"type": "float"} for i in range(10)},
        "y": {"type": "float"},
        "high": {"type": "int"},
    },
    "label": {"regression": "y"},
    "deep": [{"column": f"x{i}", "numeric": "z_score"} for i in range(10)],
    "other_columns": "ignore",
}


@pytest.fixture
def friedman(tmp_path) -> pathlib.Path:
    """3,000 rows, whose target has a standard deviation of 4.9, of which 1 is noise."""
    draw = np.random.default_rng(0)
    x = draw.random((3000, 10))
    y = (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20 * (x[:, 2] - 0.5) ** 2
        + x[:, 3:5] @ [10, 5]
        + draw.normal(size=3000)
    )
    table = pa.table(dict(zip(FRIEDMAN["columns"], [*x.T, y, (y > 14).astype(int)], strict=True)))
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=900)
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(FRIEDMAN), encoding="utf-8")
    return tmp_path


@pytest.fixture
def table(tmp_path) -> pathlib.Path:
    """A directory with `rows.csv` and `schema.yaml`."""
    trips.write(tmp_path / "table")
    return tmp_path / "table"


def halves(table: pathlib.Path) -> list[pathlib.Path]:
    """The rows in two files, each with the header."""
    header, *rows = (table / "rows.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    made = [table / "first.csv", table / "second.csv"]
    for path, part in zip(made, (rows[:250], rows[250:]), strict=True):
        path.write_text("".join([header, *part]), encoding="utf-8")
    return made


def test_a_container_sees_every_source_and_can_do_little_else(table, monkeypatch):
    from pipelines.local import runner

    monkeypatch.setattr(runner, "check_engine", lambda _: True)
    places = [table / "runs/r", table / "registry", *halves(table)]
    facts = {"id": "r", "runner": "docker", "image": "i", "dataset": "csv", "cluster": "c.yaml"}
    record = RunRecord(
        **facts,
        sources=list(map(str, places[2:])),
        arguments={"registry": str(places[1]), "run_dir": str(places[0])},
    )
    given = runner._runner(record).container_run_args
    mounts = given["mounts"]
    assert (given["user"], given["read_only"], given["cap_drop"]) == ("0:0", True, ["ALL"])
    assert given["security_opt"] == ["no-new-privileges"]
    assert [mount["Source"] for mount in mounts] == [
        str(place) for place in (places[0].parent, *places[1:])
    ]
    assert [mount["ReadOnly"] for mount in mounts] == [False, False, True, True]


@pytest.mark.pipeline
def test_the_whole_pipeline_on_a_table_of_ones_own(command, table):
    def run(*flags: object) -> dict:
        done = command(
            "pipelines/run.py",
            *("--dataset", "csv", "--source", *halves(table), "--schema", table / "schema.yaml"),
            *("--cluster", "clusters/local.yaml", "--train-steps", 60),
            *("--runs-dir", table / "runs", "--registry", table / "registry", *flags),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        newest = max((table / "runs").glob("*/summary.json"))
        return {**json.loads(newest.read_text()), "told": done.stdout}

    first = run("--set", "min_auc=0.6")
    manifest = Manifest.load(first["paths"]["dataset"])
    assert sum(split.examples for split in manifest.splits.values()) == len(trips.rows())
    assert first["model"]["name"] == "trips" and first["model"]["verdict"] in (
        "register",
        "promote",
        "reject",
    )
    evaluation = json.loads(pathlib.Path(first["paths"]["evaluation"]).read_text())
    assert evaluation["gate"]["thresholds"]["auc"] == 0.6
    assert evaluation["baseline"]["rule"] == "best single column, company"
    assert f"test auc       {first['metrics']['auc']:.4f}" in first["told"]
    other = {
        **yaml.safe_load((table / "schema.yaml").read_text(encoding="utf-8")),
        "origin": "elsewhere",
    }
    (table / "schema.yaml").write_text(yaml.safe_dump(other), encoding="utf-8")
    second = run("--model", "wide_deep", "--", "--hidden-units", "8,4")
    assert {s["name"]: s["status"] for s in second["steps"]}["convert"] == "succeeded"


@pytest.mark.pipeline
def test_regression_is_registered_and_predicts(command, friedman):
    shutil.copy(friedman / "rows.parquet", friedman / "today's.parquet")
    flags = [
        "--dataset",
        "parquet",
        "--source",
        friedman / "rows.parquet",
        "--schema",
        friedman / "schema.yaml",
    ]
    flags += [
        "--cluster",
        "clusters/local.yaml",
        "--train-epochs",
        60,
        "--threshold",
        "rmse=2",
        "r2=0.8",
    ]
    flags += ["--runs-dir", friedman / "runs", "--registry", friedman / "registry"]
    flags += ["--set", f"predict={friedman}/today's.parquet"]
    own = ["--learning-rate", 0.003, "--schedule", "linear", "--export", "best"]
    done = command("pipelines/run.py", *flags, "--", *own)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(next((friedman / "runs").glob("*/summary.json")).read_text())
    metrics, model = summary["metrics"], summary["model"]
    assert 0.9 < metrics["rmse"] < 1.6 and metrics["r2"] > 0.85
    assert (model["verdict"], model["champion"]) == ("promote", "1")
    assert f"test rmse      {metrics['rmse']:.4f}" in done.stdout
    evaluation = json.loads(pathlib.Path(summary["paths"]["evaluation"]).read_text())
    assert (
        evaluation["gate"]["thresholds"] == {"rmse": 2.0, "r2": 0.8}
        and evaluation["baseline"]["rmse"] > 3
    )
    predictions = pq.read_table(summary["paths"]["predictions"])
    errors = predictions["predictions"].to_numpy() - predictions["y"].to_numpy()
    assert len(errors) == 3000 and np.sqrt(np.mean(errors**2)) < 1.6
    assert "root mean squared error" in (pathlib.Path(summary["paths"]["report"])).read_text()
