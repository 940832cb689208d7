from __future__ import annotations

import contextlib
import io
import pathlib

import pytest
import trips

from components.convert.convert import convert
from components.convert.options import Options
from trainer.base.manifest import Manifest


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The embedded digits, converted to three shards of training examples."""
    directory = tmp_path_factory.mktemp("data") / "digits"
    with contextlib.redirect_stdout(io.StringIO()):
        convert(Options(output=str(directory), shards=3))
    return directory


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The made-up trips, converted."""
    return trips.make(tmp_path_factory.mktemp("trips"))


@pytest.fixture
def table(data: pathlib.Path) -> Manifest:
    """Their manifest."""
    return Manifest.load(data)
