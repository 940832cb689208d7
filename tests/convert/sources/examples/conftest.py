"""Fixtures of the tests of TFRecord files that others wrote."""

import pathlib
from typing import Any

import pytest

from components.convert.options import Options


@pytest.fixture
def schema(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "schema.yaml").write_text(text)
        return str(tmp_path / "schema.yaml")

    return write


@pytest.fixture
def options(tmp_path, schema):
    def make(text: str, *sources: pathlib.Path, **others: Any) -> Options:
        source = tuple(map(str, sources)) if len(sources) > 1 else str(sources[0])
        given = {"output": str(tmp_path / "out"), "shards": 1, "validation_fraction": 0, "test_fraction": 0, **others}
        return Options(dataset="tfrecord", schema=schema(text), source=source, **given)

    return make


@pytest.fixture
def rejected(tmp_path, schema, fails):
    """Sees the command refuse the sources, and returns the line that says why."""

    def run(text: str, *sources: object, flags: tuple = ()) -> str:
        given = ("--source", *sources) if sources else ()
        line = fails("--dataset", "tfrecord", *given, "--schema", schema(text), "--output", tmp_path / "out", *flags)
        assert not (tmp_path / "out").exists()
        return line

    return run
