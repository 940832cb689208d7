"""The image under test; nothing here runs without a container engine."""

import os
import subprocess

import pytest


@pytest.fixture(scope="session")
def image() -> str:
    """The image's name (`IMAGE`, as in the Makefile). `make test-docker` builds it first."""
    name = os.environ.get("IMAGE", "tfrecord-training:dev")
    if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode:
        pytest.skip(f"no image {name} here; make test-docker builds it")
    return name
