"""Contract of all back ends, with stand-ins for `ssh`, `docker` and Vertex AI.

tests/docker runs real containers. Jobs of Kubernetes need `make test-kubernetes`.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Callable

import pytest
import yaml

from components.train.__main__ import BACKENDS
from components.train.backends.backend import Backend, Job
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster, Pool
from components.train.supervision.output import Output
from tests.errors import user_error
from tests.train.train_clients import Clients
from tests.train.train_vertex import IMAGE, trainings

MISTAKE = (
    9,
    "The replica workerpool0-0 exited with a non-zero status of 2. Termination reason: Error.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """A back end, and what makes its jobs end."""

    backend: Backend
    job_dir: str
    end_with: Callable[[int], None]  # Has the next job end with 0 or 2.

    def job(self, exit_code=0):
        self.end_with(exit_code)
        command = (sys.executable, "-c", f"print('hello'); raise SystemExit({exit_code})")
        pool = Pool(machine="n1-standard-4")
        cluster = Cluster(strategy="multi_worker_mirrored", chief=pool, worker=pool)
        return Job(cluster=cluster, program=Program(command=command, job_dir=self.job_dir))

    def run(self, exit_code=0):
        with self.backend.plan(self.job(exit_code)) as plan, Output() as output:
            return self.backend.submit(plan, output)


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.kubernetes] if name == "kubernetes" else [])
        for name in BACKENDS
    ]
)
def bench(request, tmp_path, monkeypatch):
    name, backend, options = request.param, BACKENDS[request.param], {}
    about = {"job_dir": str(tmp_path / "job"), "end_with": lambda _: None}
    with contextlib.ExitStack() as stack:
        if name == "kubernetes":
            cluster = request.getfixturevalue("kubernetes_cluster")
            monkeypatch.setenv("KUBECONFIG", str(cluster.plane.kubeconfig("launcher")))
            options = {"image": "none"}
        elif name == "vertex":
            vertex, bucket = (request.getfixturevalue(each) for each in ("vertex", "bucket"))
            training = stack.enter_context(trainings(vertex, bucket, tmp_path, monkeypatch))
            options = {"image": IMAGE, "project": vertex.project}

            def end_with(exit_code):
                training.endings = [MISTAKE if exit_code else (0, "", 9)]

            about = {"job_dir": "gs://demo/job", "end_with": end_with}
        else:
            clients = Clients.install(tmp_path, monkeypatch)
            options = {"hosts": str(clients.path / "hosts")} if name == "ssh" else {}
        yield Bench(backend=backend(backend.Options(**options)), **about)


def test_plan_starts_nothing(bench, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with bench.backend.plan(bench.job()) as plan:
        assert yaml.safe_load(plan.to_text())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.cluster
def test_job_is_done_and_shown(bench):
    assert bench.run() == 0
    status = bench.backend.status(bench.job_dir)
    assert status.state == "done" and status.lines[0].startswith("done, ")
    replicas = {replica for replica, line in bench.backend.logs(bench.job_dir) if line == "hello"}
    # Kubernetes removes replicas that still run when the chief is done, and their logs with them.
    removed = {"worker/0"} if bench.backend.name == "kubernetes" else set()
    assert replicas | removed == {"chief/0", "worker/0"}
    with user_error("nothing is running here; the last that did is done"):
        bench.backend.cancel(bench.job_dir)


@pytest.mark.cluster
def test_mistake_is_not_tried_again(bench, capfd):
    assert bench.run(2) == 2
    assert "it would fail again" in capfd.readouterr().out
    assert bench.backend.status(bench.job_dir).state == "failed"


def test_directory_without_job_is_refused(bench):
    backend = bench.backend
    for call in (backend.status, backend.cancel, lambda path: list(backend.logs(path))):
        with user_error("no job ran here"):
            call(bench.job_dir)
