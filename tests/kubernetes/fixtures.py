"""Fixture of the tests that run in a Kubernetes cluster (`make test-kubernetes`), else skipped."""

import os
import pathlib

import pytest


@pytest.fixture(scope="session")
def kubernetes_cluster(tmp_path_factory):
    """Returns a `Cluster` on this machine, which the tests share."""
    if "CONTROL_PLANE" not in os.environ:
        pytest.skip("make test-kubernetes runs these")
    from tests.kubernetes.cluster import start  # Takes half a second, so only where it is needed.

    return start(pathlib.Path(os.environ["CONTROL_PLANE"]), tmp_path_factory.mktemp("cluster"))
