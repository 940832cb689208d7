"""Calls of BigQuery by Google's own client, to a server on this machine that knows the calls and no SQL."""

import os
import pathlib
from collections.abc import Callable
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
def trips(tmp_path) -> pathlib.Path:
    """The file of the table `trips`."""
    return tmp_path / "tables" / "demo-project.taxi.trips.parquet"


@pytest.fixture
def cloud(bucket, trips, monkeypatch):
    """BigQuery with a table and a view, and a bucket `demo`."""
    trips.parent.mkdir()
    for path in (trips, trips.with_name("demo-project.taxi.view.parquet")):
        pq.write_table(
            pa.table({"fare": [i / 4 for i in range(200)], "tip": [i % 2 for i in range(200)]}),
            path,
        )
    monkeypatch.setattr(bigquery, "POLL_S", 0.01)
    bigquery_server = BigQuery(trips.parent, Objects(bucket.parent))
    with (
        Front(0, bigquery_server.answer) as front,
        mock.patch("google.auth.default", return_value=(AnonymousCredentials(), "demo-project")),
    ):
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", f"http://127.0.0.1:{front.server_port}")
        yield bigquery_server
        front.shutdown()


def run(question: str = _QUERY) -> str:
    return export(plan_export(question), "gs://demo/exports")


def test_query_is_one_bounded_job(cloud, capsys, trips):
    folder = export(plan_export(f" {_QUERY};\n"), "gs://demo/exports/")
    [body] = cloud.inserted
    assert body == {
        "configuration": {
            "labels": {"managed_by": "tfrecord-training"},
            "query": {
                "maximumBytesBilled": str(trips.stat().st_size + (10 << 20)),
                "query": f"EXPORT DATA OPTIONS (uri = '{folder}/*.parquet', format = 'PARQUET', "
                f"compression = 'SNAPPY') AS\n{_QUERY}",
                "useLegacySql": False,
            },
        },
        "jobReference": {
            "jobId": body["jobReference"]["jobId"],
            "location": "US",
            "projectId": "demo-project",
        },
    }
    assert [file.path for file in list_files(folder)] == [
        f"{folder}/000000000000.parquet",
        f"{folder}/export.json",
    ]
    assert "the query reads 0.01 GB at most; job " in capsys.readouterr().out


def test_table_is_copied_view_queried(cloud):
    folder = run("demo-project.taxi.trips")
    assert cloud.inserted[0]["configuration"] == {
        "labels": {"managed_by": "tfrecord-training"},
        "extract": {
            "compression": "SNAPPY",
            "destinationFormat": "PARQUET",
            "destinationUris": [f"{folder}/*.parquet"],
            "sourceTable": {"projectId": "demo-project", "datasetId": "taxi", "tableId": "trips"},
        },
    }
    run("demo-project.taxi.view")
    assert cloud.inserted[1]["configuration"]["query"]["query"].endswith(
        "AS\nSELECT * FROM `demo-project.taxi.view`"
    )


def test_export_is_repeated_after_changes(cloud, trips, bucket):
    first = run()
    assert run() == first and len(cloud.inserted) == 1
    os.utime(trips, (1, 1))
    changed = run()
    assert changed != first and len(cloud.inserted) == 2
    (bucket / changed.removeprefix("gs://demo/") / "000000000000.parquet").unlink()
    assert run() not in (first, changed) and len(cloud.inserted) == 3


def test_interrupted_export_waits_for_job(cloud, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bigquery.time, "sleep", mock.Mock(side_effect=KeyboardInterrupt))
        run()
    folder = run()
    assert len(cloud.inserted) == 1 and len(list_files(folder)) == 2


def test_failed_job_is_begun_again(cloud):
    cloud.failure = "Backend error"
    with pytest.raises(UserError, match=r"^BigQuery cannot export SELECT .*: Backend error$"):
        run()
    assert run().endswith("/1") and len(cloud.inserted) == 2


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            "trips",
            "--source trips: dataset 'bigquery' needs a query, or a table as PROJECT.DATASET.TABLE",
        ),
        (
            "demo-project.taxi.none",
            "BigQuery refuses demo-project.taxi.none: 404 .*Not found: Table",
        ),
        ("SELECT broken", "BigQuery refuses SELECT broken: 400 .*Syntax error"),
        (
            "SELECT 1 FROM `demo-project.taxi.none`",
            "BigQuery refuses SELECT 1 .*: 404 .*Not found: Table",
        ),
    ],
)
def test_refused_question_begins_nothing(cloud, question, message):
    with pytest.raises(UserError, match=f"^{message}"):
        plan_export(question)
    assert not cloud.inserted


_SCHEMA = """
name: trips
origin: a server on this machine
columns: {fare: {type: float}, tip: {type: float}}
label: {regression: tip}
deep: [{column: fare, numeric: z_score}]
"""


@pytest.fixture
def options(tmp_path) -> Callable[..., Options]:
    """Options of a conversion by a schema of this text."""

    def make(schema: str = _SCHEMA, **changes) -> Options:
        (tmp_path / "schema.yaml").write_text(schema)
        place = {
            "schema": str(tmp_path / "schema.yaml"),
            "output": str(tmp_path / "data"),
            "shards": 2,
            "processes": 1,
        }
        source = {"dataset": "bigquery", "source": _QUERY, "export_dir": "gs://demo/exports"}
        return Options(**{**source, **place, **changes})

    return make


def test_query_converts_as_its_file(cloud, tmp_path, trips, options):
    convert(options())
    convert(
        options(
            dataset="parquet", source=str(trips), export_dir=None, output=str(tmp_path / "parquet")
        )
    )
    shards = [
        [path.read_bytes() for path in sorted((tmp_path / name).glob("*.tfrecord"))]
        for name in ("data", "parquet")
    ]
    assert shards[0] == shards[1] and len(cloud.inserted) == 1


@pytest.mark.parametrize("question", [_QUERY, "demo-project.taxi.trips"])
def test_missing_column_costs_nothing(cloud, options, question):
    schema = _SCHEMA.replace("fare: {", "fare: {header: fares, ")
    with pytest.raises(
        UserError, match=f"^BigQuery's {question}: unknown column 'fare'; did you mean 'fares'"
    ):
        convert(options(schema, source=question))
    with pytest.raises(
        UserError, match=rf"^BigQuery's {question}: has no column 'fares' \(it has 'fare', 'tip'\)"
    ):
        convert(options(f"{schema}other_columns: ignore\n", source=question))
    assert not cloud.inserted


def test_digest_changes_with_table(cloud, trips, options):
    schema = options().schema
    before = source_digest("bigquery", _QUERY, schema)
    assert component.digest(["--dataset=bigquery", f"--source={_QUERY}"], _SCHEMA) == before
    assert source_digest("bigquery", f"{_QUERY} AND 1 = 1", schema) != before
    os.utime(trips, (1, 1))
    assert source_digest("bigquery", _QUERY, schema) != before and not cloud.inserted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"export_dir": None}, "dataset 'bigquery' needs --export-dir gs://BUCKET/DIR"),
        ({"source": ("a.b.c", "a.b.d")}, "dataset 'bigquery' needs one --source"),
        ({"export_dir": "/exports"}, "--export-dir: '/exports' is not a folder of a bucket"),
    ],
)
def test_wrong_export_option_is_refused(cloud, tmp_path, options, changes, message):
    with pytest.raises(UserError, match=message):
        convert(options(**changes))
    assert not cloud.inserted and not (tmp_path / "data").exists()
