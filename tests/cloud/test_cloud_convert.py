"""A conversion from a bucket into a bucket whose store fails one request in twenty."""

import dataclasses
import gzip
import pathlib
import re
import shutil

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import trips
from PIL import Image

from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.arrays import ARRAYS

pytestmark = pytest.mark.cloud


DIGITS = pathlib.Path(__file__).parents[2] / "components" / "convert" / "sources" / "digits"


def _made(dataset: str, root: pathlib.Path) -> dict[str, str]:
    """Makes a source in a new folder; returns its flags but `source`."""
    known = trips.write(root.parent, trips.rows(20_000))
    rows = pyarrow.csv.read_csv(known["source"])
    root.mkdir()
    if dataset == "csv":
        shutil.move(known["source"], root / "trips.csv")
    elif dataset == "parquet":
        pyarrow.parquet.write_table(rows, root / "trips.parquet", row_group_size=3000)
    elif dataset == "idx":
        for path in DIGITS.glob("*.gz"):
            content = gzip.decompress(path.read_bytes())
            (root / path.stem).write_bytes(content)
            (root / path.name.replace("train", "t10k")).write_bytes(path.read_bytes())
    elif dataset == "cifar10":
        for name in (name for files in ARRAYS["cifar10"].files_of.values() for name in files):
            (root / name).write_bytes(bytes(range(10)) * 307_300)
    elif dataset == "images":
        for i in range(80):
            (root / "ab"[i % 2]).mkdir(exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (40, 40 + i % 3, 3), np.uint8)
            Image.fromarray(pixels).save(root / "ab"[i % 2] / f"{i}.png")
    else:
        convert(Options(output=str(root), shards=3))
        packed = root / "train-00001.tfrecord"
        packed.write_bytes(gzip.compress(packed.read_bytes()))
        schema = root.with_suffix(".yaml")
        schema.write_text(
            "{name: d, origin: d, image: image, label: label, classes: 10, shape: [8, 8, 1]}"
        )
        return {"dataset": dataset, "schema": str(schema)}
    return {
        "dataset": dataset,
        **({"schema": known["schema"]} if dataset in ("csv", "parquet") else {}),
    }


@pytest.mark.parametrize("dataset", ["csv", "parquet", "tfrecord", "idx", "cifar10", "images"])
def test_from_a_bucket_into_a_bucket_that_fails_it_is_the_same_dataset(
    cloud, tmp_path, capfd, dataset
):
    root = tmp_path / "source"
    options = Options(
        **_made(dataset, root), source=str(root), output=str(tmp_path / "out"), shards=3
    )
    here = convert(options)
    shutil.copytree(root, cloud.files / "source")
    place = f"gs://{cloud.bucket}"
    remote = dataclasses.replace(
        options, source=f"{place}/source", output=f"{place}/data/made", processes=2
    )
    ours = f"/{cloud.bucket}/|name={cloud.bucket}|b/{cloud.bucket}"
    cloud.fail(
        {"match": ours, "status": 503, "share": 0.05},
        {"match": f"GET .*{cloud.bucket}.*alt=media", "cut": True, "times": 1},
    )
    there = convert(remote)
    cloud.fail()
    failed = [
        line
        for line in (cloud.work / "requests.log").read_text().splitlines()
        if re.search(ours, line)
    ]
    assert there == here and sum(line.endswith(" 503") for line in failed) > 1
    files = {path.name: path.read_bytes() for path in (cloud.files / "data" / "made").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert convert(remote) == here and "was already there" in capfd.readouterr().out


def test_the_answer_to_a_query_becomes_a_registered_model_and_a_schema_that_does_not_fit_it_no_job(
    cloud, tmp_path
):
    known, table = trips.write(tmp_path, trips.rows(2_000)), f"demo-project.taxi.{cloud.bucket}"
    (tables := cloud.work / "tables").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(known["source"]), tables / f"{table}.parquet")
    flags = ["--dataset", "bigquery", "--source", f"SELECT * FROM `{table}`", "--train-steps", 50]
    (wrong := tmp_path / "wrong.yaml").write_text(
        pathlib.Path(known["schema"]).read_text().replace("miles", "mils")
    )
    one = "{strategy: one_device, chief: {machine: n1-standard-8}}"
    failed = cloud.finish(cloud.start(one, *flags, "--schema", wrong), code=1)
    log = (cloud.work / "logs" / failed.run_id / "pipeline.log").read_text()
    assert (
        "unknown column 'miles'; did you mean 'mils'?" in log
        and not (cloud.files / "exports").exists()
    )
    run = cloud.submit(one, *flags, "--schema", known["schema"])
    assert "convert: succeeded" in run.printed and run.step() == 50 and "version 1" in run.printed
    [exported] = cloud.files.glob("exports/*/0/*.parquet")
    here = convert(
        Options(
            dataset="parquet",
            schema=known["schema"],
            source=str(exported),
            output=str(tmp_path / "out"),
        )
    )
    [made] = cloud.files.glob("runs/**/manifest.json")
    assert Manifest.load(made.parent).splits == here.splits
