import dataclasses
import functools
import pathlib

import kinds
import pytest
from dataset_files import read_folder

from components.convert.convert import convert
from components.convert.options import Options


@pytest.fixture
def fails(refused):
    """Runs the command, sees it exit with 2 and one line, and returns the line."""
    from components.convert.__main__ import main

    return functools.partial(refused, main)


@pytest.fixture(scope="module", params=kinds.KINDS)
def options(request, tmp_path_factory):
    """A conversion of a source of each kind."""
    root = tmp_path_factory.mktemp("source")
    return Options(**kinds.make(request.param, root), output=f"{root}/out", shards=7, processes=1)


@pytest.fixture(scope="module")
def expected(options):
    """Files that one process makes of it, by their paths below the output."""
    convert(dataclasses.replace(options, processes=1))
    return read_folder(pathlib.Path(options.output))
