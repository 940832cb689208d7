"""Jobs on a Kubernetes cluster here: how they end, and what follows when replicas fail."""

import os
import signal
import time

import pytest
import yaml
from kubernetes import client

from components.train.backends.backend import Job
from components.train.backends.jobset import plan_jobset
from components.train.backends.program import Program
from components.train.cluster.lookup import load_cluster
from tests.kubernetes.cluster import KIND, PS, SYNC
from tests.kubernetes.control_plane import wait_for
from tests.root import ROOT

pytestmark = pytest.mark.kubernetes
CLUSTERS = sorted((ROOT / "clusters").glob("*.yaml"))
EVALUATED = {"strategy": "one_device", "chief": {}, "evaluator": {}}
LIMITED = {**SYNC, "scheduling": {"timeout": "6s"}}
IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
ROLE = yaml.safe_load((ROOT / "deploy/kubernetes/role.yaml").read_text())


@pytest.fixture
def start(kubernetes_cluster, tmp_path):
    """Starts a job of this test's directory, and waits until all its programs run."""

    def start(pools=SYNC, *flags):
        job = kubernetes_cluster.start(tmp_path / "job", pools, *flags)
        job.restarted()
        return job

    return start


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_shipped_cluster_is_accepted(kubernetes_cluster, path):
    program = Program(command=("python", "mine.py"), job_dir="gs://b/j")
    job = Job(cluster=load_cluster(path), program=program)
    jobset = plan_jobset(job, image="i", queue="q", claim="data:/data")
    strictly = {"dry_run": "All", "field_validation": "Strict"}
    kubernetes_cluster.objects.create_namespaced_custom_object(*KIND, jobset, **strictly)
    batch = client.BatchV1Api(kubernetes_cluster.core.api_client)
    for planned in jobset["spec"]["replicatedJobs"]:
        body = {"metadata": {"name": planned["name"]}, "spec": planned["template"]["spec"]}
        batch.create_namespaced_job("default", body, **strictly)


def test_stop_waits_for_pods(start, kubernetes_cluster):
    job = start()
    code, out = kubernetes_cluster.run("--stop", str(job.job_dir))
    assert code == 0, out
    assert not kubernetes_cluster.kubelet.processes(job.name) and not job.status()
    assert job.end()[0] == 143
    assert "no job ran here" in kubernetes_cluster.run("--status", str(job.job_dir))[1]


def test_deleted_job_ends_command(start, kubernetes_cluster):
    job = start()
    kubernetes_cluster.objects.delete_namespaced_custom_object(*KIND, job.name)
    code, out = job.end()
    assert code == 143 and "its JobSet was deleted" in out
    assert not kubernetes_cluster.kubelet.processes(job.name)


def test_program_that_ignores_stop_is_killed(kubernetes_cluster, tmp_path):
    line = f"python -c '{IGNORES_SIGTERM}; signal.pause()'"
    command = ["--command", line, "--job-dir", str(tmp_path / "job")]
    job = kubernetes_cluster.start(tmp_path / "job", SYNC, command=command)
    for _ in range(3):
        job.wait_for_line("| 1")
    job.launcher.terminate()
    code, out = job.end()
    assert code == 137, out
    assert not kubernetes_cluster.kubelet.processes(job.name)


def test_command_attaches_to_running_job(start):
    first = start()
    first.launcher.send_signal(signal.SIGHUP)
    code, out = first.end()
    assert code == 129 and "goes on without this" in out
    second = start()
    second.wait_for_line("runs already; this follows it")
    code, out = second.end("chief-0")
    assert code == 0 and "chief/0 | ready" in out


def test_ended_job_shows_status_and_logs(start, kubernetes_cluster):
    job = start()
    code, out = job.end("worker-1", 2)
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
        code, out = job.end("chief-0")
        assert code == 0, out


def restarts(job):
    """Returns the restarts of all after errors, and those after preemptions."""
    status = job.status()["status"]
    num_errors = status.get("restartsCountTowardsMax", 0)
    return num_errors, status.get("restarts", 0) - num_errors


@pytest.mark.parametrize("replica", ["worker-1", "chief-0"])
def test_mistake_ends_job(start, replica):
    job = start()
    code, out = job.end(replica, 2)
    name = replica.replace("-", "/")
    assert code == 2 and f"{name} failed first: exit code 2; it would fail again" in out
    assert "launcher |   ends" in out and restarts(job) == (0, 0)


@pytest.mark.parametrize(
    ("pools", "replica"), [(SYNC, "worker-0"), (SYNC, "chief-0"), (PS, "ps-0")]
)
def test_error_starts_all_again(start, pools, replica):
    job = start(pools, "--max-restarts", "1")
    job.order(replica, 1)
    assert job.restarted(replica) == job.replicas
    assert restarts(job) == (1, 0)
    code, out = job.end(replica, 3)
    assert code == 3 and f"{replica.replace('-', '/')} failed first: exit code 3; " in out
    assert "reaching max number of restarts" in out


def test_preemptions_start_all_again_uncounted(start):
    job = start(SYNC, "--max-restarts", "0")
    job.evict("chief-0")
    assert job.restarted("chief-0") == job.replicas
    os.kill(job.pids["worker-1"], signal.SIGTERM)
    assert job.restarted("worker-1") == job.replicas
    assert restarts(job) == (0, 2)
    assert job.end("chief-0")[0] == 0


def test_worker_beside_servers_restarts_alone(start):
    job = start(PS, "--max-restarts", "1")
    for code in (143, 1):
        job.order("worker-1", code)
        assert job.restarted("worker-1") == {"worker-1"}
    assert restarts(job) == (0, 0)
    code, out = job.end("worker-1", 1)
    assert code == 1 and "worker/1 failed first: exit code 1; " in out


def test_evaluator_never_ends_job(start):
    job = start(EVALUATED, "--max-restarts", "0")
    job.order("evaluator-0", 2)
    assert job.restarted("evaluator-0") == {"evaluator-0"}
    assert job.end("chief-0")[0] == 0


def test_time_limit_ends_job(start):
    code, out = start(LIMITED).end()
    assert code == 124 and "ended by its time limit" in out


def test_time_limit_holds_without_launcher(start):
    job = start(LIMITED)
    job.launcher.kill()
    wait_for(lambda: job.status()["status"].get("terminalState") == "Failed")
    out = job.cluster.run("--status", str(job.job_dir))[1]
    assert out.startswith("stopped, ") and "ended by its time limit" in out


def test_suspended_job_goes_on_later(start):
    job = start()
    job.suspend(True)
    wait_for(lambda: not job.cluster.kubelet.processes(job.name))
    job.wait_for_line("is suspended")
    job.suspend(False)
    assert job.restarted("chief-0") == job.replicas
    assert job.end("chief-0")[0] == 0


def test_outage_of_api_server_is_survived(start):
    job = start()
    job.cluster.plane.stop_api_server()
    time.sleep(10)
    job.cluster.plane.start_api_server()
    code, out = job.end("chief-0")
    assert code == 0, out
    assert "does not answer" in out
    assert (out.count("chief/0 | ready\n"), out.count("chief/0 | ends\n")) == (1, 1)


def test_reason_for_waiting_is_shown(kubernetes_cluster, tmp_path):
    pools = {**SYNC, "worker": {"pod_template": {"spec": {"nodeSelector": {"pool": "gpu"}}}}}
    job = kubernetes_cluster.start(tmp_path / "job", pools)
    job.wait_for_line("worker/0 waits for a node")
    job.launcher.terminate()
    assert job.end()[0] == 143


def test_misspelt_key_is_refused_with_path(kubernetes_cluster, tmp_path):
    pools = {**SYNC, "worker": {"pod_template": {"spec": {"nodeSelectr": {"pool": "gpu"}}}}}
    code, out = kubernetes_cluster.start(tmp_path / "job", pools).end()
    assert code == 2 and 'unknown field "spec.replicatedJobs[1].template.spec.template.spec.' in out


FLAGS = {"get jobsets": "--status", "delete jobsets": "--stop", "list pods": "--status"}
FLAGS["get pods/log"] = "--logs"


@pytest.mark.parametrize(
    ("verb", "resource"),
    [(verb, *rule["resources"]) for rule in ROLE["rules"] for verb in rule["verbs"]],
)
def test_missing_permission_is_named(start, kubernetes_cluster, verb, resource):
    """Each permission of the role is needed, by a start or by another command."""
    job, flag = start(), FLAGS.get(f"{verb} {resource}")
    rbac = client.RbacAuthorizationV1Api(kubernetes_cluster.core.api_client)
    rules = [
        {**rule, "verbs": [each]}
        for rule in ROLE["rules"]
        for each in rule["verbs"]
        if (rule["resources"], each) != ([resource], verb)
    ]
    rbac.patch_namespaced_role("training", "default", {"rules": rules})
    try:
        if flag:
            code, out = kubernetes_cluster.run(flag, str(job.job_dir))
        else:
            job.launcher.kill()
            code, out = kubernetes_cluster.start(job.job_dir, SYNC).end()
    finally:
        rbac.patch_namespaced_role("training", "default", {"rules": ROLE["rules"]})
    error = out.splitlines()[-1]
    assert code == 2 and error.startswith("error: Kubernetes: ")
    assert f'cannot {verb} resource "{resource}"' in error
    assert "ask for the Role of deploy/kubernetes/role.yaml" in error
