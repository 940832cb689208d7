"""Calls of BigQuery by Google's own client, to a server here that knows the calls and no SQL."""

import os
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_files import convert_to, write_files
from fake_bigquery import BigQuery
from google.auth.credentials import AnonymousCredentials

from common.errors import UserError
from common.storage.files import list_files
from components.convert import component
from components.convert.sources import bigquery
from components.convert.sources.bigquery import export, plan_export
from tests.cloud.front import Front
from tests.cloud.objects import Objects

_QUERY = "SELECT fare FROM `demo-project.taxi.trips` WHERE fare > 0"


@pytest.fixture
def trips(tmp_path):
    """The file of the table `trips`."""
    return tmp_path / "tables/demo-project.taxi.trips.parquet"


@pytest.fixture
def cloud(bucket, trips, monkeypatch):
    """BigQuery with a table and a view, and a bucket `demo`."""
    trips.parent.mkdir()
    table = pa.table({"fare": [i / 4 for i in range(200)], "tip": [0, 1] * 100})
    for path in (trips, trips.with_name("demo-project.taxi.view.parquet")):
        pq.write_table(table, path)
    monkeypatch.setattr(bigquery, "POLL_S", 0.01)
    server = BigQuery(trips.parent, Objects(bucket.parent))
    credentials = (AnonymousCredentials(), "demo-project")
    with (
        Front(0, server.answer) as front,
        mock.patch("google.auth.default", lambda **_: credentials),
    ):
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", f"http://127.0.0.1:{front.server_port}")
        yield server
        front.shutdown()


def run(question=_QUERY):
    return export(plan_export(question), "gs://demo/exports")


def test_query_is_one_bounded_job(cloud, capsys, trips):
    folder = run(f" {_QUERY};\n")
    [body] = cloud.inserted
    job = body["configuration"]
    assert job["labels"] == {"managed_by": "tfrecord-training"}
    options = f"uri = '{folder}/*.parquet', format = 'PARQUET', compression = 'SNAPPY'"
    assert job["query"] == {
        "maximumBytesBilled": str(trips.stat().st_size + (10 << 20)),
        "query": f"EXPORT DATA OPTIONS ({options}) AS\n{_QUERY}",
        "useLegacySql": False,
    }
    assert body["jobReference"].items() >= {"location": "US", "projectId": "demo-project"}.items()
    assert "the query reads 0.01 GB at most; job " in capsys.readouterr().out


def test_table_is_copied_view_queried(cloud):
    folder = run("demo-project.taxi.trips")
    run("demo-project.taxi.view")
    copied, queried = (body["configuration"] for body in cloud.inserted)
    extract = copied["extract"]
    assert extract["destinationUris"] == [f"{folder}/*.parquet"]
    assert extract["destinationFormat"] == "PARQUET"
    assert queried["query"]["query"].endswith("AS\nSELECT * FROM `demo-project.taxi.view`")


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


_SCHEMA = """
name: trips
origin: a server on this machine
columns: {fare: {type: float}, tip: {type: float}}
label: {regression: tip}
deep: [{column: fare, numeric: z_score}]
"""


@pytest.fixture
def start(cloud, tmp_path):
    """Converts a query by a schema of this text."""

    def run(text=_SCHEMA, **changes):
        schema = write_files(tmp_path, {"schema.yaml": text}) / "schema.yaml"
        source = {"dataset": "bigquery", "source": _QUERY, "export_dir": "gs://demo/exports"}
        return convert_to(**{"output": tmp_path / "data", **source, **changes}, schema=schema)

    return run


def test_query_converts_as_its_file(cloud, start, tmp_path, trips):
    exported = start()
    local = start(dataset="parquet", source=trips, export_dir=None, output=tmp_path / "parquet")
    assert exported.splits == local.splits and len(cloud.inserted) == 1


@pytest.mark.parametrize("question", [_QUERY, "demo-project.taxi.trips"])
def test_missing_column_costs_nothing(cloud, start, question):
    with pytest.raises(UserError, match=f"^BigQuery's {question}: unknown column 'fare'"):
        start(_SCHEMA.replace("fare: {", "fare: {header: fares, "), source=question)
    assert not cloud.inserted


def test_directory_changes_with_table(cloud, trips):
    def directory(query=_QUERY, run_folder=""):
        flags = ["--dataset=bigquery", f"--source={query}"]
        dataset, job_dir = component.locate(flags, _SCHEMA, "gs://demo/datasets", "j", run_folder)
        assert job_dir == (f"j/{run_folder}/job" if run_folder else "j")
        return dataset

    before = directory()
    assert before.startswith("gs://demo/datasets/bigquery-")
    assert before == directory(run_folder="r") != directory(f"{_QUERY} AND 1 = 1")
    os.utime(trips, (1, 1))
    assert directory() != before and not cloud.inserted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "trips"}, "^--source trips: dataset 'bigquery' needs a query, or a table as"),
        ({"source": "SELECT broken"}, "SELECT broken: 400"),
        ({"source": "SELECT 1 FROM `demo-project.taxi.none`"}, "SELECT 1 .*: 404"),
        ({"source": ("a.b.c", "a.b.d")}, "needs one --source"),
        ({"export_dir": None}, "needs --export-dir gs"),
        ({"export_dir": "/exports"}, "is not a folder of a"),
    ],
)
def test_refused_question_begins_nothing(cloud, tmp_path, start, changes, message):
    with pytest.raises(UserError, match=message):
        start(**changes)
    assert not cloud.inserted and not (tmp_path / "data").exists()
