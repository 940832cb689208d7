"""Tests of refused files and names."""

import json
import re
from pathlib import Path

import pytest
import yaml

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster
from tests.errors import user_error

CASES = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())
REFUSED = [case for case in CASES if "says" in case]
ALLOWED = [case["file"] for case in CASES if "says" not in case]


@pytest.mark.parametrize("case", REFUSED, ids=range(len(REFUSED)))
def test_bad_file_is_refused_naming_place(tmp_path, case):
    path = tmp_path / "cluster.yaml"
    path.write_bytes((case.get("text") or yaml.safe_dump(case["file"])).encode("latin-1"))
    with user_error(re.escape(f"{path}: {case['says']}")):
        load_cluster(path)


@pytest.mark.parametrize("values", ALLOWED, ids=range(len(ALLOWED)))
def test_file_close_to_refusals_loads(values):
    Cluster.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("STANDRAD_1", "unknown cluster file or scale tier 'STANDRAD_1'; did you mean 'STANDARD_1"),
        ("locl.yaml", "unknown cluster file 'locl.yaml'; did you mean 'local.yaml'?"),
        ("cloud_tpu", "cloud_tpu: trainingInput.masterType: cloud-tpu is a TPU"),
        (".", ".: cannot be read (Is a directory)"),
    ],
)
def test_bad_name_is_refused(tmp_path, monkeypatch, name, error):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "local.yaml").touch()
    with user_error(re.escape(error)):
        load_cluster(name)
