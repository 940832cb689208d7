from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.json_schema import cluster_schema

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "clusters" / "cluster.schema.json").read_text())


def test_published_schema_is_the_one_that_the_reader_makes():
    """Write it anew with: python -m components.train.cluster.json_schema > clusters/cluster.schema.json"""
    assert cluster_schema() == SCHEMA
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", sorted((ROOT / "clusters").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_file_is_valid_and_so_is_what_is_written_of_it(path: Path):
    Draft7Validator(SCHEMA).validate(yaml.safe_load(path.read_text()))
    Draft7Validator(SCHEMA).validate(Cluster.load(path).to_dict())


def test_every_key_has_a_description():
    for name, schema in {"Cluster": SCHEMA, **SCHEMA["$defs"]}.items():
        for key, value in schema["properties"].items():
            assert value["description"].endswith("."), f"{name}.{key}"
