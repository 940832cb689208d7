"""What is asked of BigQuery by Google's own client, from a server on this machine that knows the calls and no SQL."""

import os
import re
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.auth.credentials import AnonymousCredentials

from common.errors import UserError
from common.storage.files import list_files
from components.convert import component
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources import bigquery
from components.convert.sources.bigquery import export, plan_export
from components.convert.sources.registry import source_digest
from tests.cloud.bigquery import BigQuery
from tests.cloud.front import Front
from tests.cloud.objects import Objects

_QUERY = "SELECT fare FROM `demo-project.taxi.trips` WHERE fare > 0"


@pytest.fixture
def cloud(bucket, tmp_path, monkeypatch):
    """BigQuery with a table and a view, and a bucket `demo`."""
    (root := tmp_path / "tables").mkdir()
    for name in ("trips", "view"):
        table = pa.table({"fare": [number / 4 for number in range(200)], "tip": [number % 2 for number in range(200)]})
        pq.write_table(table, root / f"demo-project.taxi.{name}.parquet")
    monkeypatch.setattr(bigquery, "POLL_S", 0.01)
    made = BigQuery(root, Objects(bucket.parent))
    with (
        Front(0, made.answer) as front,
        mock.patch("google.auth.default", return_value=(AnonymousCredentials(), "demo-project")),
    ):
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", f"http://127.0.0.1:{front.server_port}")
        yield made
        front.shutdown()


def test_query_is_one_bounded_job(cloud, capsys, tmp_path):
    folder = export(plan_export(f" {_QUERY};\n"), "gs://demo/exports/")
    [body] = cloud.inserted
    size = (tmp_path / "tables" / "demo-project.taxi.trips.parquet").stat().st_size
    assert body == {
        "configuration": {
            "labels": {"managed_by": "tfrecord-training"},
            "query": {
                "maximumBytesBilled": str(size + (10 << 20)),
                "query": f"EXPORT DATA OPTIONS (uri = '{folder}/*.parquet', format = 'PARQUET', compression = 'SNAPPY') AS\n{_QUERY}",
                "useLegacySql": False,
            },
        },
        "jobReference": {"jobId": body["jobReference"]["jobId"], "location": "US", "projectId": "demo-project"},
    }
    assert [file.path for file in list_files(folder)] == [f"{folder}/000000000000.parquet", f"{folder}/export.json"]
    assert "the query reads 0.01 GB at most; job " in capsys.readouterr().out


def test_table_is_copied_view_is_queried(cloud):
    folder = export(plan_export("demo-project.taxi.trips"), "gs://demo/exports")
    assert cloud.inserted[0]["configuration"] == {
        "labels": {"managed_by": "tfrecord-training"},
        "extract": {
            "compression": "SNAPPY",
            "destinationFormat": "PARQUET",
            "destinationUris": [f"{folder}/*.parquet"],
            "sourceTable": {"projectId": "demo-project", "datasetId": "taxi", "tableId": "trips"},
        },
    }
    export(plan_export("demo-project.taxi.view"), "gs://demo/exports")
    assert cloud.inserted[1]["configuration"]["query"]["query"].endswith("AS\nSELECT * FROM `demo-project.taxi.view`")


def test_export_is_repeated_after_changes(cloud, tmp_path, bucket):
    first = export(plan_export(_QUERY), "gs://demo/exports")
    assert export(plan_export(_QUERY), "gs://demo/exports") == first and len(cloud.inserted) == 1
    os.utime(tmp_path / "tables" / "demo-project.taxi.trips.parquet", (1, 1))
    changed = export(plan_export(_QUERY), "gs://demo/exports")
    assert changed != first and len(cloud.inserted) == 2
    (bucket / changed.removeprefix("gs://demo/") / "000000000000.parquet").unlink()
    assert export(plan_export(_QUERY), "gs://demo/exports") not in (first, changed) and len(cloud.inserted) == 3


def test_interrupted_export_waits_for_job(cloud, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bigquery.time, "sleep", mock.Mock(side_effect=KeyboardInterrupt))
        export(plan_export(_QUERY), "gs://demo/exports")
    folder = export(plan_export(_QUERY), "gs://demo/exports")
    assert len(cloud.inserted) == 1 and len(list_files(folder)) == 2


def test_failed_job_is_begun_again(cloud):
    cloud.failure = "Backend error"
    with pytest.raises(UserError, match=r"^BigQuery cannot export SELECT .*: Backend error$"):
        export(plan_export(_QUERY), "gs://demo/exports")
    assert export(plan_export(_QUERY), "gs://demo/exports").endswith("/1") and len(cloud.inserted) == 2


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("trips", "--source trips: dataset 'bigquery' needs a query, or a table as PROJECT.DATASET.TABLE"),
        ("demo-project.taxi.none", "BigQuery refuses demo-project.taxi.none: 404 .*Not found: Table"),
        ("SELECT broken", "BigQuery refuses SELECT broken: 400 .*Syntax error"),
        ("SELECT 1 FROM `demo-project.taxi.none`", "BigQuery refuses SELECT 1 .*: 404 .*Not found: Table"),
    ],
)
def test_refused_question_begins_nothing(cloud, asked, told):
    with pytest.raises(UserError, match=f"^{told}"):
        plan_export(asked)
    assert not cloud.inserted


_SCHEMA = """
name: trips
origin: a server on this machine
columns: {fare: {type: float}, tip: {type: float}}
label: {regression: tip}
deep: [{column: fare, numeric: z_score}]
"""


def test_query_converts_as_its_file(cloud, tmp_path):
    (schema := tmp_path / "schema.yaml").write_text(_SCHEMA)
    common = {"schema": str(schema), "shards": 2, "processes": 1}
    files = str(tmp_path / "tables" / "demo-project.taxi.trips.parquet")
    shards = []
    for name, more in {
        "bigquery": {"export_dir": "gs://demo/exports", "source": _QUERY},
        "parquet": {"source": files},
    }.items():
        output = tmp_path / name
        convert(Options(dataset=name, output=str(output), **common, **more))
        shards.append([path.read_bytes() for path in sorted(output.glob("*.tfrecord"))])
    assert shards[0] == shards[1] and len(cloud.inserted) == 1


@pytest.mark.parametrize("asked", [_QUERY, "demo-project.taxi.trips"])
def test_missing_column_costs_nothing(cloud, tmp_path, asked):
    (schema := tmp_path / "schema.yaml").write_text(_SCHEMA.replace("fare: {", "fare: {header: fares, "))
    place = {"export_dir": "gs://demo/exports", "output": str(tmp_path / "data")}
    with pytest.raises(UserError, match=f"^BigQuery's {asked}: unknown column 'fare'; did you mean 'fares'"):
        convert(Options(dataset="bigquery", schema=str(schema), source=asked, **place))
    schema.write_text(f"{schema.read_text()}other_columns: ignore\n")
    with pytest.raises(UserError, match=rf"^BigQuery's {asked}: has no column 'fares' \(it has 'fare', 'tip'\)"):
        convert(Options(dataset="bigquery", schema=str(schema), source=asked, **place))
    assert not cloud.inserted


def test_digest_changes_with_the_table(cloud, tmp_path):
    (schema := tmp_path / "schema.yaml").write_text(_SCHEMA)
    before = source_digest("bigquery", _QUERY, str(schema))
    assert component.digest(["--dataset=bigquery", f"--source={_QUERY}"], _SCHEMA) == before
    assert (
        source_digest("bigquery", _QUERY, str(schema))
        == before
        != source_digest("bigquery", f"{_QUERY} AND 1 = 1", str(schema))
    )
    os.utime(tmp_path / "tables" / "demo-project.taxi.trips.parquet", (1, 1))
    assert source_digest("bigquery", _QUERY, str(schema)) != before and not cloud.inserted


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"source": _QUERY}, "dataset 'bigquery' needs --export-dir gs://BUCKET/DIR"),
        ({"export_dir": "gs://demo/exports", "source": ("a.b.c", "a.b.d")}, "dataset 'bigquery' needs one --source"),
        ({"export_dir": "/exports", "source": _QUERY}, "--export-dir: '/exports' is not a folder of a bucket"),
        (
            {"export_dir": "gs://demo/x", "source": _QUERY, "dataset": "csv"},
            "--export-dir means nothing to dataset 'csv'",
        ),
    ],
)
def test_missing_export_option_is_told(cloud, tmp_path, given, told):
    (schema := tmp_path / "schema.yaml").write_text(_SCHEMA)
    with pytest.raises(UserError, match=re.escape(told)):
        convert(Options(output=str(tmp_path / "data"), **{"schema": str(schema), "dataset": "bigquery", **given}))
    assert not cloud.inserted and not (tmp_path / "data").exists()
