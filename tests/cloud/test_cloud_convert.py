"""A conversion from a bucket into a bucket whose store fails one request in twenty."""

import dataclasses
import pathlib
import re
import shlex

import pyarrow.csv
import pyarrow.parquet
import pytest
import trips

from components.convert.convert import convert
from components.convert.options import Options
from trainer.base.manifest import Manifest

pytestmark = pytest.mark.cloud


@pytest.mark.parametrize("dataset", ["csv", "parquet"])
def test_from_a_bucket_into_a_bucket_that_fails_it_is_the_same_dataset(cloud, tmp_path, capfd, dataset):
    known = trips.write(tmp_path, trips.rows(20_000))
    source = pathlib.Path(known["source"])
    if dataset == "parquet":
        rows = pyarrow.csv.read_csv(source)
        source = source.with_suffix(".parquet")
        pyarrow.parquet.write_table(rows, source, row_group_size=3000)
    options = Options(
        dataset=dataset, schema=known["schema"], source=str(source), output=str(tmp_path / "out"), shards=3
    )
    here = convert(options)
    (cloud.files / source.name).write_bytes(source.read_bytes())
    place = f"gs://{cloud.bucket}"
    remote = dataclasses.replace(options, source=f"{place}/{source.name}", output=f"{place}/data/trips", processes=2)
    ours = f"/{cloud.bucket}/|name={cloud.bucket}|b/{cloud.bucket}"
    cloud.fail({"match": ours, "status": 503, "share": 0.05}, {"match": ours, "reset": True, "times": 1})
    there = convert(remote)
    cloud.fail()
    failed = [line for line in (cloud.work / "requests.log").read_text().splitlines() if re.search(ours, line)]
    assert there == here and sum(line.endswith(" 503") for line in failed) > 1
    files = {path.name: path.read_bytes() for path in (cloud.files / "data" / "trips").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert convert(remote) == here and "already there" in capfd.readouterr().out


def test_the_answer_to_a_query_becomes_a_registered_model_and_a_schema_that_does_not_fit_it_no_job(cloud, tmp_path):
    known, table = trips.write(tmp_path, trips.rows(2_000)), f"demo-project.taxi.{cloud.bucket}"
    (tables := cloud.work / "tables").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(known["source"]), tables / f"{table}.parquet")
    flags = ["--dataset", "bigquery", "--source", f"SELECT * FROM `{table}`", "--train-steps", 50]
    (wrong := tmp_path / "wrong.yaml").write_text(pathlib.Path(known["schema"]).read_text().replace("miles", "mils"))
    one = "{strategy: one_device, chief: {machine: n1-standard-8}}"
    failed = cloud.finish(cloud.start(one, *flags, "--schema", wrong), code=1)
    log = (cloud.work / "logs" / failed.run_id / "pipeline.log").read_text()
    assert "unknown column 'miles'; did you mean 'mils'?" in log and not (cloud.files / "exports").exists()
    run = cloud.submit(one, *flags, "--schema", known["schema"])
    assert "convert: succeeded" in run.printed and run.step() == 50 and "version 1" in run.printed
    [exported] = cloud.files.glob("exports/*/0/*.parquet")
    here = convert(
        Options(dataset="parquet", schema=known["schema"], source=str(exported), output=str(tmp_path / "out"))
    )
    [made] = cloud.files.glob("runs/**/manifest.json")
    assert Manifest.load(made.parent).splits == here.splits


def test_four_replicas_of_a_custom_job_make_the_dataset_that_one_process_makes(cloud, tmp_path):
    known = trips.write(tmp_path, trips.rows(5_000))
    source = pathlib.Path(known["source"])
    here = convert(
        Options(dataset="csv", schema=known["schema"], source=str(source), output=str(tmp_path / "out"), shards=8)
    )
    (cloud.files / source.name).write_bytes(source.read_bytes())
    place, cluster = f"gs://{cloud.bucket}", tmp_path / "cluster.yaml"
    machine = "{machine: n1-standard-4}"
    cluster.write_text(
        f"{{strategy: multi_worker_mirrored, chief: {machine}, worker: {{machine: n1-standard-4, replicas: 3}}}}"
    )
    words = [
        "--dataset=csv",
        f"--schema={known['schema']}",
        f"--source={place}/{source.name}",
        "--shards=8",
        "--task=auto",
    ]
    command = shlex.join(["python", "-m", "components.convert", *words, f"--output={place}/trips"])
    where = ["--project", "demo-project", "--location", "us-central1", "--image", cloud.image]
    job = ["--cluster", cluster, "--job-dir", f"{place}/jobs/convert", "--command", command]
    process = cloud.run("-m", "components.train", "--backend", "vertex", *where, *job)
    printed, _ = process.communicate()
    assert not process.returncode, printed
    assert Manifest.load(cloud.files / "trips") == here
    assert {p.name: p.read_bytes() for p in (cloud.files / "trips").iterdir()} == {
        p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()
    }
