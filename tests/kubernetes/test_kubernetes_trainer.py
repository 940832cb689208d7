"""The project's trainer on a Kubernetes cluster of this machine, disturbed as clusters do it."""

import json
import os
import signal

import pytest

from tests.kubernetes.cluster import PS, SYNC
from tests.kubernetes.control_plane import wait_for

pytestmark = pytest.mark.kubernetes
FLAGS = "--model cnn --batch-size 64 --train-steps 200 --checkpoint-num-steps 20 --deterministic"


@pytest.fixture
def start(kubernetes_cluster, digits, tmp_path):
    """Starts a training in a directory of its own, beside the dataset."""

    def start(pools, directory=tmp_path):
        job_dir = directory / "job"
        template = {
            "volumes": [{"name": "data", "hostPath": {"path": str(digits)}}],
            "containers": [
                {"name": "trainer", "volumeMounts": [{"name": "data", "mountPath": str(digits)}]}
            ],
        }
        pools = {
            role: pool | {"pod_template": {"spec": template}} if isinstance(pool, dict) else pool
            for role, pool in pools.items()
        }
        flags = ["--", "--data-dir", f"{digits}/", "--job-dir", str(job_dir), *FLAGS.split()]
        return kubernetes_cluster.start(job_dir, pools, command=flags)

    return start


def checkpointed(job):
    """Waits until the job has a checkpoint, from which it can go on."""
    path = job.job_dir / "checkpoints"
    wait_for(lambda: list(path.glob("ckpt-*.index")), "a checkpoint", limit_s=120)


def kill(job, replica):
    role, _, index = replica.partition("-")
    (process,) = job.cluster.kubelet.processes(f"{job.name}-{role}-0-{index}-")
    os.kill(process.pid, signal.SIGKILL)


def result(job):
    """Returns step and loss of a job that is done."""
    code, out = job.end()
    assert code == 0, out
    done = json.loads((job.job_dir / "DONE.json").read_text())
    return done["step"], done["loss"]


UNDISTURBED = {}


def suspend_and_resume(job):
    job.suspend(True)
    wait_for(lambda: not job.cluster.kubelet.processes(job.name), "the end of the pods")
    job.suspend(False)


@pytest.mark.parametrize(
    "disturb",
    [
        lambda job: kill(job, "worker-1"),
        lambda job: kill(job, "chief-0"),
        lambda job: job.evict("worker-0"),
        suspend_and_resume,
    ],
    ids=["worker killed", "chief killed", "worker evicted", "suspended"],
)
def test_disturbed_job_learns_the_same(start, tmp_path_factory, disturb):
    if not UNDISTURBED:
        UNDISTURBED["result"] = result(start(SYNC, tmp_path_factory.mktemp("undisturbed")))
    job = start(SYNC)
    checkpointed(job)
    disturb(job)
    assert result(job) == UNDISTURBED["result"]
    assert job.status()["status"]["restarts"] >= 1


@pytest.mark.parametrize("replica", ["worker-1", "ps-0"])
def test_job_with_parameter_servers_recovers(start, replica):
    job = start(PS)
    checkpointed(job)
    kill(job, replica)
    assert result(job)[0] >= 200
    assert job.status()["status"].get("restarts", 0) == (replica == "ps-0")
