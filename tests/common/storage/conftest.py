"""Where files are, in turn: a directory of this machine, and a bucket of a store on it."""

import pathlib

import pytest


@pytest.fixture(params=["here", "bucket"])
def disk(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """The directory in which the files of `place` are kept, whatever it is."""
    root = tmp_path if request.param == "here" else request.getfixturevalue("bucket")
    (root / "folder").mkdir()
    return root / "folder"


@pytest.fixture
def place(disk: pathlib.Path) -> str:
    """A folder that has nothing in it."""
    return "gs://demo/folder" if disk.parent.name == "demo" else str(disk)
