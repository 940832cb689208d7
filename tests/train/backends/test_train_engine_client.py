"""What stands beside each container, with a stand-in for the engine."""

import json
from pathlib import Path

import psutil
import pytest
from train_clients import Clients
from train_fakes import guard_of, wait_until

from components.train.backends import engine_client

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        ("kill -9 $$", 128 + 9, "was killed by signal 9"),
        ("kill -37 $$", 128 + 37, "was killed by signal 37"),
        ("exit 0", 1, ""),  # Without the container.
        ("exit 125", 2, ""),
        ("exit 137", 137, ""),
    ],
)
def test_code_of_the_engines_client_is_its_own_or_tells_the_signal(
    clients: Clients, capfd: pytest.CaptureFixture, end: str, code: int, says: str
):
    assert engine_client.run("box", "sh", "-c", end) == code
    assert (f"the engine's client of box {says}" in capfd.readouterr().out) == bool(says)


def test_launcher_of_a_job_in_a_bucket_removes_nothing_of_one_that_lives_and_what_one_left_that_is_gone(
    clients: Clients,
):
    def job(log: str, command: str) -> tuple[str, ...]:
        return ("docker", "--command", command, "--job-dir", "gs://b/job", "--log-dir", str(clients.path / log))

    def containers() -> set[Path]:
        return set(clients.path.glob("*.pid"))

    first = clients.start(*job("first", "sleep 60"))
    wait_until(lambda: len(containers()) == 2)
    before = containers()
    code, _, err = clients.run(*job("second", "sleep 60"))
    assert code == 2
    assert f"a launcher already works on gs://b/job: process {first.pid}; wait for it, or end it" in err
    assert containers() == before and all(psutil.pid_exists(int(path.read_text())) for path in before)
    guard_of(first).kill()
    first.kill()
    first.communicate()
    assert containers() == before
    assert clients.run(*job("third", "true"))[0] == 0
    assert not containers() and not list(clients.path.glob("*.network"))


@pytest.mark.parametrize("locked", [False, True])
def test_what_runs_of_a_launcher_elsewhere_is_removed_only_by_who_holds_the_jobs_lock(
    clients: Clients, capfd: pytest.CaptureFixture, locked: bool
):
    assert engine_client.prepare("old", "job", "shared") == 0
    network = clients.path / "old.network"
    network.write_text(
        json.dumps([label.replace('"host": "', '"host": "far-') for label in json.loads(network.read_text())])
    )
    (clients.path / "box.labels").write_text(json.dumps(["training.network=old"]))
    (clients.path / "box.pid").write_text("999999999")
    assert engine_client.prepare("new", "job", "locked" if locked else "shared") == (0 if locked else 2)
    assert network.exists() == (clients.path / "box.pid").exists() == (not locked)
    said = capfd.readouterr().err
    assert locked or ("in another container of this machine, far-" in said and "docker rm --force box" in said)
    if not locked:
        (clients.path / "box.labels").unlink()  # Nothing of it runs any more.
        engine_client.remove("new")
        assert engine_client.prepare("newer", "job", "shared") == 0
        assert not network.exists()
