"""The failure contract with the real trainer; `make chaos` does it at random and more often."""

import os
import signal

import pytest

from tests.root import ROOT
from tools.chaos import Blow, arena

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    return arena(tmp_path_factory.mktemp("chaos"), "digits")


@pytest.fixture
def one_worker(tmp_path):
    """Returns the cluster file of a chief, a worker and a parameter server."""
    path = tmp_path / "cluster.yaml"
    path.write_text("{strategy: parameter_server, chief: {}, worker: {}, ps: {}}")
    return path


def test_synchronous_job_survives_faults(ring):
    blows = [
        Blow(victim="worker/0", number=signal.SIGKILL, when=0.1),
        Blow(victim="chief/0", number=signal.SIGTERM, when=0.4),
        Blow(victim="worker/0", number=signal.SIGSTOP, when=0.7),
    ]
    accuracy, restarted = ring.run(ROOT / "clusters" / "local-sync.yaml", blows, "sync")
    assert accuracy > 0.95
    assert restarted == [("chief/0", "worker/0")] * 3


def test_parameter_server_job_survives_kills(ring, one_worker):
    """Restarts the only worker by itself, without which the chief could not go on."""
    blows = [
        Blow(victim="worker/0", number=signal.SIGKILL, when=0.1),
        Blow(victim="ps/0", number=signal.SIGKILL, when=0.5),
    ]
    accuracy, restarted = ring.run(one_worker, blows, "ps")
    assert accuracy > 0.93
    assert restarted == [("worker/0",), ("chief/0", "worker/0", "ps/0")]


def test_parameter_servers_run_on_one_core(ring, one_worker):
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        accuracy, _ = ring.run(one_worker, [], "one-core")
    finally:
        os.sched_setaffinity(0, cores)
    assert accuracy > 0.93
