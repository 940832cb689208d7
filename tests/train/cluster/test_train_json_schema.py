from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from bad_clusters import OURS, bad_files
from jsonschema import Draft7Validator

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.json_schema import cluster_schema

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "clusters" / "cluster.schema.json").read_text())


def test_published_schema_is_the_one_that_the_reader_makes():
    """Write it anew with: python -m components.train.cluster.json_schema > clusters/cluster.schema.json"""
    assert cluster_schema() == SCHEMA


def test_it_is_a_schema():
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", sorted((ROOT / "clusters").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_file_is_valid_and_so_is_what_is_written_of_it(path: Path):
    Draft7Validator(SCHEMA).validate(yaml.safe_load(path.read_text()))
    Draft7Validator(SCHEMA).validate(Cluster.load(path).to_dict())


def test_an_editor_finds_what_the_reader_refuses_but_for_what_needs_the_tables():
    validator = Draft7Validator(SCHEMA)
    ours = [(text, place) for text, place in bad_files() if "trainingInput" not in text and place != "line"]
    documents = [(yaml.safe_load(text), place) for text, place in ours]
    unseen = {place for document, place in documents if validator.is_valid(document)}
    assert len(documents) > 100
    # That parameter servers need workers and the other way round is the launcher's to say.
    assert unseen == {"ps", "worker"}


def test_every_key_has_a_description():
    for name, schema in {"Cluster": SCHEMA, **SCHEMA["$defs"]}.items():
        for key, value in schema["properties"].items():
            assert value["description"].endswith("."), f"{name}.{key}"


def test_the_full_file_is_valid():
    assert Draft7Validator(SCHEMA).is_valid(yaml.safe_load(OURS))
