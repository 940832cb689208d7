"""A table of one's own goes through the pipeline with its schema."""

import json
import pathlib

import pytest
import trips
import yaml

from pipelines.record import RunRecord
from trainer.base.manifest import Manifest


@pytest.fixture
def table(tmp_path) -> pathlib.Path:
    """A directory with `rows.csv` and `schema.yaml`."""
    trips.write(tmp_path / "table")
    return tmp_path / "table"


def rename(schema: pathlib.Path) -> None:
    content = yaml.safe_load(schema.read_text(encoding="utf-8"))
    schema.write_text(yaml.safe_dump({**content, "origin": "elsewhere"}), encoding="utf-8")


def halves(table: pathlib.Path) -> list[pathlib.Path]:
    """The rows in two files, each with the header."""
    header, *rows = (table / "rows.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    made = [table / "first.csv", table / "second.csv"]
    for path, part in zip(made, (rows[:250], rows[250:]), strict=True):
        path.write_text("".join([header, *part]), encoding="utf-8")
    return made


def test_a_container_sees_every_source(table):
    from pipelines.local import _runner

    places = [table / "runs/r", table / "registry", *halves(table)]
    record = RunRecord(
        **{"id": "r", "runner": "docker", "image": "i", "cache": True, "sources": list(map(str, places[2:]))},
        arguments={"registry": str(places[1])},
    )
    mounts = _runner(record, places[0]).container_run_args["mounts"]
    assert [mount["Source"] for mount in mounts] == [str(place) for place in (places[0].parent, *places[1:])]
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
        newest = max((table / "runs").iterdir())
        return {**json.loads((newest / "summary.json").read_text()), "told": done.stdout}

    first = run("--min-auc", "0.6")
    manifest = Manifest.load(first["paths"]["dataset"])
    assert sum(split.examples for split in manifest.splits.values()) == len(trips.rows())
    assert first["model"]["name"] == "trips"
    assert first["model"]["verdict"] in ("register", "promote", "reject")
    evaluation = json.loads(pathlib.Path(first["paths"]["evaluation"]).read_text())
    assert evaluation["thresholds"]["auc"] == 0.6
    assert evaluation["baseline"]["rule"] == "best single column, company"
    assert f"test auc       {first['metrics']['auc']:.4f}" in first["told"]
    rename(table / "schema.yaml")
    second = run("--model", "wide_deep", "--", "--hidden-units", "8,4")
    assert {s["name"]: s["status"] for s in second["steps"]}["convert"] == "succeeded"
    wrong = command(
        "pipelines/run.py",
        *("--dataset", "csv", "--source", table / "rows.csv", "--schema", table / "schema.yaml", "--model", "cnn"),
        *("--cluster", "clusters/local.yaml", "--runs-dir", table / "wrong", "--registry", table / "registry"),
    )
    assert wrong.returncode
    assert "--model cnn does not fit dataset 'trips', which is a table; use wide_deep" in wrong.stdout + wrong.stderr
