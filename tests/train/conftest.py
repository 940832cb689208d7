import psutil
import pytest
from train_clients import Clients
from train_fakes import Bench

from components.train.supervision import restart_policy


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(restart_policy, "_BACKOFF_S", 0.05)  # of jobs run in this process
    bench = Bench(path=tmp_path)
    children = set(psutil.Process().children(recursive=True))
    yield bench
    left = [*bench.processes(), *(set(psutil.Process().children(recursive=True)) - children)]
    for process in left:
        process.kill()
    assert not left


@pytest.fixture
def clients(tmp_path, monkeypatch):
    return Clients.install(tmp_path, monkeypatch)
