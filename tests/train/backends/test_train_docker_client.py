"""What stands beside each container, with a stand-in for the engine."""

import pytest
from train_clients import Clients
from train_fakes import guard_of, wait_until

from components.train.backends import docker_client

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ("kill -9 $$", 128 + 9, "was killed by signal 9"),
        ("exit 0", 1, ""),  # Without the container.
        ("exit 125", 2, ""),
        ("exit 137", 137, ""),
    ],
)
def test_exit_code_of_the_engines_client(
    clients: Clients, capfd: pytest.CaptureFixture, end: str, code: int, message: str
):
    assert docker_client.run("box", "sh", "-c", end) == code
    assert (f"the engine's client of box {message}" in capfd.readouterr().out) == bool(message)


def test_next_launcher_removes_what_a_killed_one_left(clients: Clients):
    first = clients.start("docker", "--command", "sleep 60", "--job-dir", str(clients.path / "job"))
    wait_until(lambda: len(list(clients.path.glob("*.pid"))) == 2)
    guard_of(first).kill()
    first.kill()
    first.communicate()
    assert len(list(clients.path.glob("*.pid"))) == 2
    assert clients.run("docker", "--command", "true", "--job-dir", str(clients.path / "job"))[0] == 0
    assert not list(clients.path.glob("*.pid")) and not list(clients.path.glob("*.network"))
