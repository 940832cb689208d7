"""Jobs on a Kubernetes cluster of this machine, which end well or are ended."""

import signal

import pytest
from kubernetes import client

from components.train.backends.backend import Job
from components.train.backends.jobset import plan_jobset
from components.train.backends.program import Program
from components.train.cluster.lookup import load_cluster
from tests.kubernetes.cluster import SYNC
from tests.root import ROOT

pytestmark = pytest.mark.kubernetes
CLUSTERS = sorted((ROOT / "clusters").glob("*.yaml"))
IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"


@pytest.fixture
def start(kubernetes_cluster, tmp_path):
    """Starts a job of this test's directory, again if it is called again."""
    return lambda *flags, **more: kubernetes_cluster.start(tmp_path / "job", SYNC, *flags, **more)


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_shipped_cluster_is_accepted(kubernetes_cluster, path):
    program = Program(command=("python", "mine.py"), job_dir="gs://b/j")
    job = Job(cluster=load_cluster(path), program=program)
    jobset = plan_jobset(job, image="i", queue="q", claim="data:/data")
    strictly = {"dry_run": "All", "field_validation": "Strict"}
    kind = ("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")
    kubernetes_cluster.objects.create_namespaced_custom_object(*kind, jobset, **strictly)
    batch = client.BatchV1Api(kubernetes_cluster.core.api_client)
    for planned in jobset["spec"]["replicatedJobs"]:
        body = {"metadata": {"name": planned["name"]}, "spec": planned["template"]["spec"]}
        batch.create_namespaced_job("default", body, **strictly)


def test_program_without_our_code_runs(start):
    job = start()
    for _ in range(3):
        job.wait_for_line("| ready")
    job.order("chief-0", 0)
    code, out = job.end()
    assert code == 0, out
    assert {"chief/0 | ends", "chief/0 | ready", "worker/1 | ready"} <= {*out.splitlines()}
    assert "chief/0 ended: exit code 0" in out
    assert out.splitlines()[-1].startswith("launcher | done after ")


def test_stop_waits_for_pods(start, kubernetes_cluster):
    job = start()
    job.restarted()
    code, out = kubernetes_cluster.run("--stop", str(job.job_dir))
    assert code == 0, out
    assert not kubernetes_cluster.kubelet.processes(job.name) and not job.status()
    assert job.end()[0] == 143
    assert "no job ran here" in kubernetes_cluster.run("--status", str(job.job_dir))[1]


def test_deleted_job_ends_command(start, kubernetes_cluster):
    job = start()
    job.restarted()
    kind = ("jobset.x-k8s.io", "v1alpha2", "default", "jobsets")
    kubernetes_cluster.objects.delete_namespaced_custom_object(*kind, job.name)
    code, out = job.end()
    assert code == 143 and "its JobSet was deleted" in out
    assert not kubernetes_cluster.kubelet.processes(job.name)


def test_program_that_ignores_stop_is_killed(start, kubernetes_cluster, tmp_path):
    line = f"python -c '{IGNORES_SIGTERM}; signal.pause()'"
    job = start(command=["--command", line, "--job-dir", str(tmp_path / "job")])
    for _ in range(3):
        job.wait_for_line("| 1")
    job.launcher.terminate()
    code, out = job.end()
    assert code == 137, out
    assert not kubernetes_cluster.kubelet.processes(job.name)


def test_command_attaches_to_running_job(start):
    first = start()
    first.restarted()
    first.launcher.send_signal(signal.SIGHUP)
    code, out = first.end()
    assert code == 129 and "goes on without this" in out
    second = start()
    second.wait_for_line("runs already; this follows it")
    second.order("chief-0", 0)
    code, out = second.end()
    assert code == 0 and "chief/0 | ready" in out


def test_ended_job_shows_status_and_logs(start, kubernetes_cluster):
    job = start()
    job.restarted()
    job.order("worker-1", 2)
    code, out = job.end()
    assert code == 2, out
    shown = {
        verb: kubernetes_cluster.run(f"--{verb}", str(job.job_dir))[1]
        for verb in ("status", "logs", "stop")
    }
    assert shown["status"].startswith("failed, ")
    assert "worker/1     ended: exit code 2" in shown["status"]
    assert "worker/1 | ends\n" in shown["logs"]
    assert "nothing is running here; the last that did is failed" in shown["stop"]


def test_ended_job_is_submitted_again(start):
    for _ in range(2):
        job = start()
        job.restarted()
        job.order("chief-0", 0)
        code, out = job.end()
        assert code == 0, out
