"""The image under test, and a dataset; nothing here runs without a container engine."""

import os
import subprocess

import pytest


@pytest.fixture(scope="session")
def image():
    """The image's name (`IMAGE`, as in the Makefile). `make test-docker` builds it first."""
    name = os.environ.get("IMAGE", "tfrecord-training:dev")
    if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode:
        pytest.skip(f"no image {name} here; make test-docker builds it")
    return name


@pytest.fixture
def data(digits, tmp_path):
    """Flags for the embedded digits, and a job directory beside."""
    return f"--data-dir {digits} --job-dir {tmp_path / 'job'}"
