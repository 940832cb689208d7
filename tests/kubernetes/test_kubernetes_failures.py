"""Replicas that fail on a Kubernetes cluster of this machine, and what follows."""

import os
import signal
import time

import pytest
import yaml
from kubernetes import client

from tests.kubernetes.cluster import PS, SYNC
from tests.kubernetes.control_plane import wait_for
from tests.root import ROOT

pytestmark = pytest.mark.kubernetes
EVALUATED = {"strategy": "one_device", "chief": {}, "evaluator": {}}
LIMITED = {**SYNC, "scheduling": {"timeout": "6s"}}


@pytest.fixture
def start(kubernetes_cluster, tmp_path):
    """Starts a job, and waits until all its programs run."""

    def start(pools, *flags):
        job = kubernetes_cluster.start(tmp_path / "job", pools, *flags)
        job.restarted()
        return job

    return start


def restarts(job):
    """Returns the restarts of all after errors, and those after preemptions."""
    status = job.status()["status"]
    num_errors = status.get("restartsCountTowardsMax", 0)
    return num_errors, status.get("restarts", 0) - num_errors


@pytest.mark.parametrize("replica", ["worker-1", "chief-0"])
def test_mistake_ends_job(start, replica):
    job = start(SYNC)
    job.order(replica, 2)
    code, out = job.end()
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
    job.order(replica, 3)
    code, out = job.end()
    assert code == 3 and f"{replica.replace('-', '/')} failed first: exit code 3; " in out
    assert "reaching max number of restarts" in out


def test_preemptions_start_all_again_uncounted(start):
    job = start(SYNC, "--max-restarts", "0")
    job.evict("chief-0")
    assert job.restarted("chief-0") == job.replicas
    os.kill(job.pids["worker-1"], signal.SIGTERM)
    assert job.restarted("worker-1") == job.replicas
    assert restarts(job) == (0, 2)
    job.order("chief-0", 0)
    assert job.end()[0] == 0


def test_worker_beside_servers_restarts_alone(start):
    job = start(PS, "--max-restarts", "1")
    for code in (143, 1):
        job.order("worker-1", code)
        assert job.restarted("worker-1") == {"worker-1"}
    assert restarts(job) == (0, 0)
    job.order("worker-1", 1)
    code, out = job.end()
    assert code == 1 and "worker/1 failed first: exit code 1; " in out


def test_replaced_worker_is_not_blamed(start):
    job = start(PS)
    job.order("worker-1", 1)
    assert job.restarted("worker-1") == {"worker-1"}
    job.order("chief-0", 2)
    code, out = job.end()
    assert code == 2 and "chief/0 failed first: exit code 2" in out


def test_evaluator_never_ends_job(start):
    job = start(EVALUATED, "--max-restarts", "0")
    job.order("evaluator-0", 2)
    assert job.restarted("evaluator-0") == {"evaluator-0"}
    job.order("chief-0", 0)
    assert job.end()[0] == 0


def test_time_limit_ends_job(start):
    code, out = start(LIMITED).end()
    assert code == 124 and "ended by its time limit" in out


def test_time_limit_holds_without_launcher(start):
    job = start(LIMITED)
    job.launcher.kill()
    wait_for(lambda: job.status()["status"].get("terminalState") == "Failed", "the time limit")
    out = job.cluster.run("--status", str(job.job_dir))[1]
    assert out.startswith("stopped, ") and "ended by its time limit" in out


def test_suspended_job_goes_on_later(start):
    job = start(SYNC)
    job.suspend(True)
    wait_for(lambda: not job.cluster.kubelet.processes(job.name), "the end of the pods")
    job.wait_for_line("is suspended")
    job.suspend(False)
    assert job.restarted("chief-0") == job.replicas
    job.order("chief-0", 0)
    assert job.end()[0] == 0


def test_outage_of_api_server_is_survived(start):
    job = start(SYNC)
    job.cluster.plane.stop_api_server()
    time.sleep(10)
    job.cluster.plane.start_api_server()
    job.order("chief-0", 0)
    code, out = job.end()
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


VERBS = [
    ("jobsets", "create", ""),
    ("jobsets", "get", "--status"),
    ("jobsets", "delete", "--stop"),
    ("pods", "list", "--status"),
    ("pods", "watch", ""),
    ("pods/log", "get", "--logs"),
]


def test_role_grants_nothing_else():
    role = yaml.safe_load((ROOT / "deploy/kubernetes/role.yaml").read_text())
    granted = [
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert granted == [(resource, verb) for resource, verb, _ in VERBS]


@pytest.mark.parametrize(("resource", "verb", "flag"), VERBS)
def test_missing_permission_is_named(start, kubernetes_cluster, resource, verb, flag):
    job = start(SYNC)
    rbac, name = (
        client.RbacAuthorizationV1Api(kubernetes_cluster.core.api_client),
        ("training", "default"),
    )
    role = rbac.read_namespaced_role(*name)
    rules = [
        client.V1PolicyRule(api_groups=rule.api_groups, resources=rule.resources, verbs=[each])
        for rule in role.rules
        for each in rule.verbs
        if (rule.resources, each) != ([resource], verb)
    ]
    rbac.patch_namespaced_role(*name, {"rules": rules})
    try:
        if flag:
            code, out = kubernetes_cluster.run(flag, str(job.job_dir))
        else:
            job.launcher.kill()
            code, out = kubernetes_cluster.start(job.job_dir, SYNC).end()
    finally:
        rbac.patch_namespaced_role(*name, {"rules": role.rules})
    error = out.splitlines()[-1]
    assert code == 2 and error.startswith("error: Kubernetes: ")
    assert f'cannot {verb} resource "{resource}"' in error
    assert "ask for the Role of deploy/kubernetes/role.yaml" in error
