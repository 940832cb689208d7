import subprocess
from pathlib import Path

import pytest

from components.train.backends import environment
from components.train.backends.hosts import remote_python, ssh
from components.train.backends.hosts.preflight import Facts
from components.train.backends.plan import Plan
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Pool
from components.train.console.command_line import parse
from trainer.base.errors import UserError


def plan(path: Path, monkeypatch: pytest.MonkeyPatch, *, hosts: int, name: str) -> Plan:
    """Of a job on this many hosts, which are not asked."""
    facts = {"python": "3.11.0", "executable": "python", "tensorflow": None, "cores": 4, "gpus": (), "ports": (10_001,)}
    told = Facts(**facts, there=True, manifest=None, rsync=True)
    monkeypatch.setattr(ssh, "ask", lambda lines, _: dict.fromkeys(lines, told))
    monkeypatch.setattr(ssh, "check_versions", lambda *_, **__: [])
    (path / "hosts").write_text("".join(f"{name}{i}\n" for i in range(hosts)))
    return ssh.plan_hosts(
        parse(["--backend", "ssh", "--hosts", str(path / "hosts"), "--sync-dst-dir", "/disk"]),
        Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=hosts - 1)),
        Program(command=("x",), env={}, job_dir=str(path), data_dir=str(path), reports=True),
    )


def test_every_command_and_variable_of_a_job_on_600_hosts_can_be_given_to_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = plan(tmp_path, monkeypatch, hosts=600, name="training-node-in-a-rack.of-our-own.example.org-")
    chief = found.replicas[0]
    for command in (*found.setup, found.level, found.teardown, chief.command, chief.cleanup):
        subprocess.run(["true", *command], env=dict(chief.env), check=True)
    request = remote_python.from_arguments(found.level[4:])
    assert len(request["hosts"]) == 600
    assert remote_python.from_arguments(chief.command[4:])["back"] == request


def test_cluster_whose_addresses_do_not_fit_into_tf_config_is_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(UserError, match=r"TF_CONFIG of 600 replicas has 1\d\d,\d{3} bytes, and Linux"):
        plan(tmp_path, monkeypatch, hosts=600, name="n" * 230)
    # And that is what Linux would say.
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["true"], env={"TF_CONFIG": "n" * (environment._VARIABLE_BYTES + 1)})
    subprocess.run(["true"], env={"TF_CONFIG": "n" * environment._VARIABLE_BYTES}, check=True)
